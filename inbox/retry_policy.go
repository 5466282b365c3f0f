package inbox

import (
	"errors"
	"fmt"
	"time"

	"github.com/oncebox/oncebox/inbox/internal/store"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/retry"
)

// RetryPolicy says how often, and for how long, a message is tried whose handler fails. With the defaults that is three times at once,
// then after pauses that grow from 5 seconds to 10 minutes, for three days: a service that was away for a weekend costs no dead letter. An
// error that is [messaging.Permanent] makes a dead letter at once.
//
// [Config.Retry] is the policy of all consumers, the option [Retry] that of one.
type RetryPolicy struct {
	// Tries is how often a message is tried in the process that received it, while the later messages of its key wait there, before it
	// is parked. At least 1. The pauses between these tries are the consumer's. The message is parked earlier if the messages behind it
	// fill the queue of the consumer ([messaging.Message.QueueFull]). Default: 3.
	Tries int `env:"TRIES"`
	// Policy has the pauses between the tries of a parked message. [messaging.RetryAfter] overrides them. Default: 5s, up to 10m.
	retry.Policy `envPrefix:"PARKED_"`
	// GiveUpAfter is how long a message is tried, from when it was parked because it failed. The try that fails later than
	// that makes it a dead letter. -1: without end. Default: 72h.
	GiveUpAfter time.Duration `env:"GIVE_UP_AFTER"`
	// MaxAttempts is how often a message is tried in all before it becomes a dead letter, if that comes before GiveUpAfter. Tries that
	// were interrupted by the death of their process count. -1: without end. Default: -1.
	MaxAttempts int `env:"MAX_ATTEMPTS"`
	// MaxCrashes is how many tries one after the other may end with the death of their process, or without an outcome that could be
	// written down, before the message becomes a dead letter: it would kill one process after the other. -1: without end. Default: 10.
	MaxCrashes int `env:"MAX_CRASHES"`
	// DeployWait is how long a message stays parked that this build of the program does not know, so that a build that knows it can be
	// deployed: a message of a newer schema version than is registered, or of a type that is not ([messaging.Router.Strict]). Then it
	// becomes a dead letter. The time counts from the first try as a parked message that found so. The message is tried again after pauses
	// from Delay to MaxDelay, which grow with that time; these tries do not count for MaxAttempts. -1: without end. Default: 168h.
	DeployWait time.Duration `env:"DEPLOY_WAIT"`
}

func (p *RetryPolicy) validate(what string) error {
	var errs []error
	for name, n := range map[string]int{"MaxAttempts": p.MaxAttempts, "MaxCrashes": p.MaxCrashes} {
		if n < -1 {
			errs = append(errs, fmt.Errorf("inbox: %s.%s is %d: give a count of at least 1, or -1 for no end", what, name, n))
		}
	}
	for name, d := range map[string]time.Duration{"GiveUpAfter": p.GiveUpAfter, "DeployWait": p.DeployWait} {
		if d < -1 {
			errs = append(errs, fmt.Errorf("inbox: %s.%s is %s: give a duration, or -1 for no end", what, name, d))
		}
	}
	if p.Tries < 0 {
		errs = append(errs, fmt.Errorf("inbox: %s.Tries is %d: give a count of at least 1", what, p.Tries))
	}
	return errors.Join(append(errs, p.Policy.Validate("inbox: "+what))...)
}

// or returns the policy with what it does not say taken from another one.
func (p *RetryPolicy) or(other RetryPolicy) RetryPolicy {
	out := *p
	for field, value := range map[*int]int{
		&out.Tries: other.Tries, &out.MaxAttempts: other.MaxAttempts, &out.MaxCrashes: other.MaxCrashes,
	} {
		if *field == 0 {
			*field = value
		}
	}
	for field, value := range map[*time.Duration]time.Duration{
		&out.GiveUpAfter: other.GiveUpAfter, &out.DeployWait: other.DeployWait,
	} {
		if *field == 0 {
			*field = value
		}
	}
	out.Policy = out.Policy.Or(other.Policy)
	return out
}

func defaultRetry() RetryPolicy {
	return RetryPolicy{
		Tries: 3, Policy: retry.Policy{Delay: 5 * time.Second, MaxDelay: 10 * time.Minute}, GiveUpAfter: 72 * time.Hour, MaxAttempts: -1, MaxCrashes: 10,
		DeployWait: 7 * 24 * time.Hour,
	}
}

// quick has the pauses between the first tries of a message, which are the consumer's: where the message is parked already, or replayed, no consumer
// makes them. None is longer than the first pause of a parked message.
func (s *settings) quick() retry.Policy {
	p := s.receive.WithDefaults().Retry
	p.MaxDelay = min(p.MaxDelay, s.retry.Delay)
	return p
}

// pause is how long a message waits after its nth try.
func (s *settings) pause(n int, cause error) time.Duration {
	if wait, asked := messaging.RetryDelay(cause); asked && wait > 0 {
		return wait
	}
	if n < s.retry.Tries {
		return s.quick().Pause(n)
	}
	return s.retry.Pause(n - s.retry.Tries + 1)
}

// longest is the pause of a message for which nothing can be done soon.
func (p *RetryPolicy) longest() time.Duration { return max(p.MaxDelay, p.Delay) }

// buildPause is how long a message waits that has waited for so long: as long again, so that it is tried soon after a build that took long,
// and thousands of them are not tried all the time.
func (p *RetryPolicy) buildPause(waited time.Duration) time.Duration {
	return retry.Policy{Delay: max(waited, p.Delay), MaxDelay: p.longest()}.Pause(1)
}

// isExhausted tells whether a message is given up that failed n times, the first time so long ago.
func (p *RetryPolicy) isExhausted(n int, failing time.Duration) bool {
	return p.MaxAttempts > 0 && n >= p.MaxAttempts || p.GiveUpAfter > 0 && failing >= p.GiveUpAfter
}

// isDeadly tells whether a message is given up without another try, because of what is written down of the earlier ones.
func (p *RetryPolicy) isDeadly(earlier store.Attempts) bool {
	return p.MaxAttempts > 0 && earlier.N >= p.MaxAttempts || p.MaxCrashes > 0 && earlier.Unended >= p.MaxCrashes
}

// waitsForBuild tells whether the message of cause, which no build has known for so long, goes on waiting for a build that does.
func (p *RetryPolicy) waitsForBuild(unknown time.Duration, cause error) bool {
	return needsBuild(cause) && (p.DeployWait < 0 || unknown < p.DeployWait)
}

// unbuilt is why a message is given up that has waited for too long.
func (p *RetryPolicy) unbuilt(cause error) error {
	return fmt.Errorf("inbox: within %s (RetryPolicy.DeployWait) no build was deployed that knows it: %w", p.DeployWait, cause)
}
