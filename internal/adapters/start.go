package adapters

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/oncebox/oncebox/internal/backoff"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/retry"
)

// Start leads from Connect to the moment when a broker can be used. Make it with [NewStart].
type Start struct {
	Greeting

	background sync.WaitGroup
	done       chan struct{} // closed when Greet has succeeded

	mu   sync.Mutex
	last error // of the last attempt
}

// Greeting says how a broker is reached.
type Greeting struct {
	// Kind is the name of the broker's kind for people, "Kafka".
	Kind string
	// URL is the address for the log, without a password.
	URL string
	// Setting is the setting that has the address, "Config.URL (ONCEBOX_KAFKA_URL)".
	Setting string
	// Greet tries once to reach the broker, and to make what the configuration asks for.
	Greet func(ctx context.Context) error
	// Lasts reports whether waiting does not mend an error.
	Lasts func(err error) bool
	// Required makes Begin fail if the broker cannot be reached for Timeout, which also limits the first attempt without Required.
	Required bool
	Timeout  time.Duration
	// Open is done when the connection is closed.
	Open context.Context //nolint:containedctx // the life of the connection
	// Log receives the lines about the wait.
	Log *slog.Logger
}

const (
	// firstWord is the time between the first and the second log line about the wait for the broker; the time doubles with each further
	// line, up to lastWord.
	firstWord = 10 * time.Second
	lastWord  = 10 * time.Minute
)

// NewStart returns a start that has not begun.
func NewStart(g Greeting) *Start { return &Start{Greeting: g, done: make(chan struct{})} }

// Begin tries to reach the broker. After an error that may pass, unless Required is set, it returns nil and goes on in the background.
func (s *Start) Begin(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	began := time.Now()
	// A broker that has just started refuses some requests for moments. Required does not fail for that.
	err := s.try(limited)
	for attempt := 1; err != nil && s.Required && !s.Lasts(err) && Pause(limited, attempt) == nil; attempt++ {
		if next := s.try(limited); next == nil || limited.Err() == nil {
			err = next
		} // else the time is over, which is no news: the error before says what is wrong
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("connect to %s: %w", s.Kind, context.Cause(ctx))
	case s.Lasts(err):
		return fmt.Errorf("connect to %s: %w", s.Kind, err)
	case s.Required:
		return s.down("connect", fmt.Errorf("no answer for %s: start the broker, or correct %s; Config.ConnectTimeout sets how long to wait: %w",
			time.Since(began).Round(time.Millisecond), s.Setting, err))
	}
	s.Log.WarnContext(ctx, "oncebox: the broker cannot be reached, so nothing is published or received; the connection is tried again until it "+
		"succeeds. Start the broker, or correct the setting", "broker", s.Kind, "setting", s.Setting, "url", s.URL, "error", err)
	s.background.Go(s.goOn)
	return nil
}

// End waits until Begin's work in the background has ended, which is soon after Open is done. It reports whether that took less than limit.
func (s *Start) End(limit time.Duration) bool { return WaitFor(&s.background, limit) }

// Drain is the beginning of a broker's Close: calls takes no further ones, and those under way may take up to limit to end. Then end, which makes
// Open done, ends them. It returns false if it was called before.
func (s *Start) Drain(calls *Calls, end func(), limit time.Duration) (first bool) {
	if !calls.Close() {
		return false
	}
	if s.IsUnder() {
		end() // calls that still wait for the first connection have sent nothing, so they may end now
	}
	if !calls.Wait(limit) {
		end()
		calls.Wait(limit)
	}
	return true
}

// IsUnder reports whether the broker has not been reached yet.
func (s *Start) IsUnder() bool {
	select {
	case <-s.done:
		return false
	default:
		return true
	}
}

// Wait waits until the broker has been reached once. call is for the error, a [messaging.ErrBrokerDown].
func (s *Start) Wait(ctx context.Context, call string) error {
	if !s.IsUnder() {
		return nil
	}
	select {
	case <-s.done:
		return nil
	case <-ctx.Done():
		return s.down(call, fmt.Errorf("%w; the last error was: %w", context.Cause(ctx), s.why()))
	case <-s.Open.Done():
		return s.down(call, s.why())
	}
}

func (s *Start) try(ctx context.Context) error {
	err := s.Greet(ctx)
	if err == nil {
		close(s.done)
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = err
	return err
}

func (s *Start) why() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last == nil {
		return errors.New("the broker has not answered yet")
	}
	return s.last
}

func (s *Start) down(call string, why error) error {
	return fmt.Errorf("%w: %s at %s: %s: %w", messaging.ErrBrokerDown, s.Kind, s.URL, call, why)
}

// goOn tries until it succeeds or the connection is closed.
func (s *Start) goOn() {
	ctx, began := s.Open, time.Now()
	said, words := began, 1
	for attempt := 1; Pause(ctx, attempt) == nil; attempt++ {
		limited, cancel := context.WithTimeout(ctx, s.Timeout)
		err := s.try(limited)
		cancel()
		if err == nil {
			s.Log.InfoContext(ctx, "oncebox: the connection to the broker is open",
				"broker", s.Kind, "url", s.URL, "waited", time.Since(began).Round(time.Millisecond))
			return
		}
		if ctx.Err() != nil {
			return
		}
		if time.Since(said) < backoff.Exponential(words, firstWord, lastWord) {
			continue
		}
		said, words = time.Now(), words+1
		level := slog.LevelInfo
		if s.Lasts(err) {
			level = slog.LevelError // somebody has to act
		}
		s.Log.Log(ctx, level, "oncebox: the broker still cannot be reached; the connection is tried again",
			"broker", s.Kind, "url", s.URL, "waited", time.Since(began).Round(time.Second), "error", err)
	}
}

// Insist calls fn until its error is not [messaging.ErrBrokerDown], and returns that of the last call when ctx is done.
func Insist(ctx context.Context, fn func() error) error {
	for attempt := 1; ; attempt++ {
		err := fn()
		if !errors.Is(err, messaging.ErrBrokerDown) || Pause(ctx, attempt) != nil {
			return err
		}
	}
}

// Pause waits a little longer with each attempt. It returns an error if ctx is done first.
func Pause(ctx context.Context, attempt int) error {
	return retry.Policy{Delay: 100 * time.Millisecond, MaxDelay: time.Second}.Wait(ctx, attempt)
}
