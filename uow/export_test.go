package uow

// Same tells whether two units are one, each as a context of its own has it.
func Same(a, b *Unit) bool { return a.level == b.level }
