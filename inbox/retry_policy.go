package inbox

import (
	"errors"
	"fmt"
	"time"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/inbox/internal/store"
	"github.com/oncebox/oncebox/internal/envelope"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/retry"
)

// RetryPolicy sets how often, and for how long, a message is tried again after its handler has failed. By default the process that received the
// message tries it three times, with the short pauses of the consumer ([messaging.ConsumerConfig]). Then the message is parked: it is stored in the
// database, and tried again for three days, with pauses that grow from 5 seconds to 10 minutes. So a system that is down for a weekend causes no dead
// letters. An error that is [messaging.Permanent] makes a dead letter at once.
//
// [Config.Retry] is the policy of all consumers. The option [Retry] sets the policy of one consumer.
type RetryPolicy struct {
	// Tries is how often a message is tried, at least 1, before it is parked in the database. The process that received the message makes the first
	// tries, with the pauses of messaging.ConsumerConfig.Retry. Meanwhile the later messages of the ordering key wait in the consumer's queue. If they
	// fill the queue, the first message is parked earlier ([messaging.Message.QueueFull]). Default: 3.
	Tries int `env:"TRIES"`
	// Policy sets the pauses between the tries of a parked message, which waits in the database. A handler that returns [messaging.RetryAfter] sets its
	// own pause. Default: 5s, up to 10m.
	retry.Policy
	// GiveUpAfter is how long a parked message is tried. The first try that fails after this time makes the message a dead letter. If the message was
	// parked behind another message, the time begins with its own first failure. Default: 72h. With -1 the message is tried without end.
	GiveUpAfter time.Duration `env:"GIVE_UP_AFTER"`
	// MaxAttempts is the number of tries after which a message becomes a dead letter, even if GiveUpAfter has not ended. All tries count: the tries
	// before the message was parked, and tries whose process died. Default: -1, no limit.
	MaxAttempts int `env:"MAX_ATTEMPTS"`
	// MaxCrashes is the number of crashes in a row after which a message becomes a dead letter. A try counts as a crash if its process dies, or if its
	// result cannot be stored. So a message does not kill one process after another. Default: 10. With -1 there is no limit.
	MaxCrashes int `env:"MAX_CRASHES"`
	// DeployWait is how long a message of an unknown type or schema version stays parked before it becomes a dead letter. With -1 the message stays
	// parked without end. During DeployWait you can deploy a build that knows the type or the version. A version is unknown if it is newer than the
	// registered version. A message of an unknown type is parked only if the router is [messaging.Router.Strict]. DeployWait begins with the first try
	// of the parked message that fails because of the type or the version. Meanwhile the message is tried with pauses from Delay to MaxDelay. These
	// tries do not count for MaxAttempts. Default: 168h.
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

// or returns the policy with its unset fields taken from another one.
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

// defaultRetry bridges a weekend: 72 hours from Friday evening end on Monday evening.
func defaultRetry() RetryPolicy {
	return RetryPolicy{
		Tries: 3, Policy: retry.Policy{Delay: 5 * time.Second, MaxDelay: 10 * time.Minute}, GiveUpAfter: 72 * time.Hour, MaxAttempts: -1, MaxCrashes: 10,
		DeployWait: 7 * 24 * time.Hour,
	}
}

// quick returns the pauses between the first tries of a parked or replayed message: the pauses that the consumer makes for a message from the
// broker, but none of them longer than the first pause of a parked message.
func (s *settings) quick() retry.Policy {
	p := s.receive.WithDefaults().Retry
	p.MaxDelay = min(p.MaxDelay, s.retry.Delay)
	return p
}

// pause is how long a message waits after its nth try.
func (s *settings) pause(n int, cause error) time.Duration {
	// What the handler asks for wins, because it knows when the other side is back.
	if wait, asked := messaging.RetryDelay(cause); asked && wait > 0 {
		return wait
	}
	if n < s.retry.Tries {
		return s.quick().Pause(n)
	}
	return s.retry.Pause(n - s.retry.Tries + 1)
}

// longest is the pause of a message that will not succeed soon.
func (p *RetryPolicy) longest() time.Duration { return max(p.MaxDelay, p.Delay) }

// buildPause is the next pause of a message that waits for a build: as long as it has waited so far, up to the longest pause. So thousands
// of such messages are not tried all the time, and a build that comes soon is noticed soon.
func (p *RetryPolicy) buildPause(waited time.Duration) time.Duration {
	return retry.Policy{Delay: max(waited, p.Delay), MaxDelay: p.longest()}.Pause(1)
}

// isExhausted reports whether a message is given up after n failed tries. failing is how long it has failed already.
func (p *RetryPolicy) isExhausted(n int, failing time.Duration) bool {
	return p.MaxAttempts > 0 && n >= p.MaxAttempts || p.GiveUpAfter > 0 && failing >= p.GiveUpAfter
}

// isDeadly reports whether a message is given up without another try, because too many earlier tries have ended without an outcome.
func (p *RetryPolicy) isDeadly(earlier store.Attempts) bool {
	// Only tries without an outcome count here: the process died, or could not store why it failed.
	return p.MaxAttempts > 0 && earlier.N >= p.MaxAttempts || p.MaxCrashes > 0 && earlier.Unended >= p.MaxCrashes
}

// decision is what becomes of a message whose handler failed.
type decision int

const (
	tryHere    decision = iota // it is tried again by the process that received it
	tryLater                   // it is tried again from the database, after a pause
	awaitBuild                 // it is tried again from the database, by a build of the program that knows it
	giveUp                     // it becomes a dead letter
)

// failure is what a decision depends on.
type failure struct {
	cause   error
	tries   int           // 0: not counted, so the limits of the policy are not looked at
	failing time.Duration // how long it has failed already; 0 for a message that is not parked
	unknown time.Duration // how long it has waited already for a build that knows it
}

// decide returns what becomes of a message. It is the same for messages from the broker and for parked ones; those are never tried here,
// so for them tryHere means a short pause.
func (p *RetryPolicy) decide(f failure) decision {
	wait, asked := messaging.RetryDelay(f.cause)
	switch {
	case needsBuild(f.cause) && (p.DeployWait < 0 || f.unknown < p.DeployWait):
		return awaitBuild
	case needsBuild(f.cause), hopeless(f.cause), p.isExhausted(f.tries, f.failing):
		return giveUp
	case f.tries < p.Tries && (!asked || wait < p.Delay):
		return tryHere
	default:
		// A pause that was asked for and is long would block the messages behind it in the receiving process. The database waits better.
		return tryLater
	}
}

// hopeless reports whether another try is pointless.
func hopeless(err error) bool {
	var decode *event.DecodeError
	return messaging.IsPermanent(err) || errors.As(err, &decode) || errors.Is(err, event.ErrErased)
}

// unbuilt returns the error text of a message that has waited too long for a build.
func (p *RetryPolicy) unbuilt(cause error) error {
	return fmt.Errorf("inbox: within %s (RetryPolicy.DeployWait) no build was deployed that knows it: %w", p.DeployWait, cause)
}

// needsBuild reports whether this build of the program does not know the message yet, so that trying again helps once a later build is
// deployed. During a deployment old processes receive messages that only new ones know. It is false for an event that the handler could not
// emit, which is a fault of this build, and for an error that the handler marked as permanent.
func needsBuild(err error) bool {
	if messaging.IsPermanent(err) || envelope.IsOutgoing(err) {
		return false
	}
	return errors.Is(err, event.ErrNewerVersion) || errors.Is(err, event.ErrUnknownType) || errors.Is(err, messaging.ErrNoHandler)
}

// logged identifies a line of the log that is written once.
type logged struct {
	consumer, topic, eventType string
	version                    int
}

// maxLogged is how many lines are remembered. It needs a bound, because senders may invent any number of types.
const maxLogged = 1000
