from .size import maximum as maximum, minimum as minimum
