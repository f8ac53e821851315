"""Transformations as users meet them: on a `Program` (value to value) or on a callable (traced when it is called)."""
