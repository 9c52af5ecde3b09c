"""What do workers learn if they share updates late?

Small tasks compute each gradient on the weights that a worker holds at the simulated moment. This
folder can be deleted when theory predicts the loss.
"""
