"""Ring 2: kinds of jobs other than a plan's step, a folder each. Ring 1 knows none of them."""
