package kills

import (
	"context"
	"fmt"
	"time"
)

// eventually looks again and again until look returns nil. It is await.True for goroutines that cannot end the test: where ctx ends
// first, it returns what look said last.
func eventually(ctx context.Context, what string, look func(context.Context) error) error {
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
			return fmt.Errorf("waited in vain for %s: %w", what, err)
		}
	}
}
