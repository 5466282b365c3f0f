package oncebox

import "context"

// Declare is what a start does with the broker.
func Declare(ctx context.Context, a *App) error { return a.declare(ctx) }
