"""amcast: atomic multicast. Order messages across groups of replicated processes."""

__version__ = "0.1.0"
