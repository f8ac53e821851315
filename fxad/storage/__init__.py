"""Programs in files and as bytes for other processes."""
