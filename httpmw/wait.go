package httpmw

import (
	"context"
	"time"

	"github.com/oncebox/oncebox/internal/backoff"
)

// How long a request waits for another one with the same key before it looks again: at first, and at most.
const (
	firstLook = 10 * time.Millisecond
	slowLook  = 250 * time.Millisecond
)

// await tries until the key is not another request's any more, or until IdempotencyConfig.Wait has passed, or the client
// has gone. Between two tries it holds the request and nothing else, least of all a connection to the database.
func (k *keyed) await(ctx context.Context, try func() (*answer, string)) (*answer, string) {
	end := time.Now().Add(k.cfg.Wait)
	for n := 1; ; n++ {
		a, outcome := try()
		left := time.Until(end)
		if outcome != outcomeInProgress || left <= 0 {
			return a, outcome
		}
		pause := backoff.Jitter(backoff.Exponential(n, firstLook, slowLook))
		if backoff.Wait(ctx, min(pause, left)) != nil {
			return a, outcome
		}
	}
}
