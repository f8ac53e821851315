"""The transformations of the public interface: of a `Program` (value to value) or of a callable (traced when it is
called)."""
