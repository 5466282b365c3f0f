package messaging

import (
	"context"
	"time"
)

// RetentionReader is a broker that knows for how long it may bring a message again. [oncebox.App] warns at its start if that is longer than the
// inbox remembers.
//
// [oncebox.App]: https://pkg.go.dev/github.com/oncebox/oncebox#App
type RetentionReader interface {
	// Retention returns for how long a topic keeps messages; 0: nothing says so, -1: for ever. errors.ErrUnsupported: it cannot be found out.
	Retention(ctx context.Context, topic string) (time.Duration, error)
}
