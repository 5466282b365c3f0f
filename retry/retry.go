// Package retry has the one policy for the pauses between tries: of the handlers of consumers, of the publications of the relay, of units of
// work, and of all that oncebox does again by itself. docs/retries.md lists what is tried again, how often, and where it ends.
package retry

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/oncebox/oncebox/internal/backoff"
)

// Policy sets how long the pauses between tries are. The number of tries, and what happens after the last one, is set
// by other fields beside it.
//
// The pause after the first try is Delay. It doubles with each further try, up to MaxDelay. Each pause is shortened by
// a random part of up to half, so that tries that failed together do not come back together.
type Policy struct {
	// Delay is the pause after the first failed try. Each further pause is twice as long, up to MaxDelay.
	Delay time.Duration `env:"DELAY"`
	// MaxDelay is the longest pause between two tries. If MaxDelay is less than Delay, all pauses are MaxDelay.
	MaxDelay time.Duration `env:"MAX_DELAY"`
}

// Pause returns the pause after the nth try, from 1.
func (p Policy) Pause(n int) time.Duration { return backoff.Jitter(p.Longest(n)) }

// Longest returns the pause after the nth try without its random part.
func (p Policy) Longest(n int) time.Duration { return backoff.Exponential(n, p.Delay, p.MaxDelay) }

// Wait waits for the pause after the nth try. It returns the cause of ctx as soon as that ends.
func (p Policy) Wait(ctx context.Context, n int) error { return backoff.Wait(ctx, p.Pause(n)) }

// Or returns the policy with its zero fields replaced by those of other.
func (p Policy) Or(other Policy) Policy {
	if p.Delay == 0 {
		p.Delay = other.Delay
	}
	if p.MaxDelay == 0 {
		p.MaxDelay = other.MaxDelay
	}
	return p
}

// Validate names every field that cannot be used. what is the name of the field that holds the policy, such
// as "uow: Config.Retry".
func (p Policy) Validate(what string) error {
	var errs []error
	for _, f := range []struct {
		name string
		d    time.Duration
	}{{"Delay", p.Delay}, {"MaxDelay", p.MaxDelay}} {
		if f.d < 0 {
			errs = append(errs, fmt.Errorf("%s.%s is %s: give a duration", what, f.name, f.d))
		}
	}
	return errors.Join(errs...)
}
