package main

import (
	"context"
	"fmt"
	"time"
)

// await looks again and again until look returns nil. After the limit it returns what look said last.
func await(ctx context.Context, what string, limit time.Duration, look func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := look(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("waited %s for %s: %w", limit, what, err)
		}
	}
}
