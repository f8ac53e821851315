from . import checkpoint_policies as checkpoint_policies, policies as policies
