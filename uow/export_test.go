package uow

import (
	"time"

	"github.com/oncebox/oncebox/internal/unit"
)

// Same reports whether two units are one, each as a context of its own has it.
func Same(a, b *Unit) bool { return a.level == b.level }

// Inside returns the unit as oncebox's own packages use it.
func Inside(u *Unit) unit.Unit { return (*inside)(u.level) }

// TellOfWaitsAfter says how long a unit waits for a connection before that is logged.
func TellOfWaitsAfter(m *Manager, d time.Duration) { m.pool.starvedAfter = d }

// WaitIsDue reports whether the log would report a waiting unit at a given time, and notes it.
func WaitIsDue(m *Manager, now time.Time) bool { return m.pool.due(now) }
