from . import picture as picture
