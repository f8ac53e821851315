from . import budget as budget
