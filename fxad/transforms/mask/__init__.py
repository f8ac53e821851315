"""`mask`: one program for every length: from a program of symbolic shape to a program on padded arrays and sizes."""
