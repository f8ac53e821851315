"""Plans for a budget of bytes: which values reverse mode stores, recomputes and reconstructs; and their search."""
