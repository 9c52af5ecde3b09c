"""One scenario asked many times: points, executors, a store of answers."""
