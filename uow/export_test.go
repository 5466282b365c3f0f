package uow

import "github.com/oncebox/oncebox/internal/unit"

// Same tells whether two units are one, each as a context of its own has it.
func Same(a, b *Unit) bool { return a.level == b.level }

// Inside returns the unit as oncebox's own packages use it.
func Inside(u *Unit) unit.Unit { return (*inside)(u.level) }
