package oncebox

import (
	"context"
	"time"
)

// Declare is what a start does with the broker.
func Declare(ctx context.Context, a *App) error { return a.declare(ctx) }

// SetUnusedAfter changes how long after the start an app asks whether its topics are in use.
func SetUnusedAfter(a *App, d time.Duration) { a.unusedAfter = d }
