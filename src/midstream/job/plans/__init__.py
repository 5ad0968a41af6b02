"""By which plans a query runs, all its slots or each by its own, and how it goes over to another."""
