package pulsar

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/oncebox/oncebox/internal/adapters"
	"github.com/oncebox/oncebox/internal/backoff"
	"github.com/oncebox/oncebox/messaging/pulsar/internal/answer"
)

// start leads from Connect to the moment when the broker can be used.
type start struct {
	broker *Broker       // the broker that it starts
	done   chan struct{} // closed when the topics and subscriptions of Config exist

	mu     sync.Mutex
	last   error       // error of the last attempt
	refuse func(error) // ends the request that is under way
}

// asking sets the function that isRefused calls, or nil.
func (s *start) asking(refuse func(error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = refuse
}

// isRefused is called with the reason when the broker refuses a connection. It ends the request under way: the client would repeat it until
// its timeout, and then report a connection error.
func (s *start) isRefused(reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuse != nil && strings.Contains(strings.ToLower(reason), "authenticat") {
		s.refuse(fmt.Errorf("%w: %s", answer.ErrNotLetIn, reason))
	}
}

// isUnder reports whether the start is not complete yet.
func (s *start) isUnder() bool {
	select {
	case <-s.done:
		return false
	default:
		return true
	}
}

// failed keeps the error for callers that wait meanwhile.
func (s *start) failed(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = err
}

func (s *start) why() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// begin tries once to reach the broker and to make the topics and subscriptions of Config. After an error that may pass, unless
// Config.Required is set, it goes on in the background.
func (s *start) begin(ctx context.Context) error {
	b := s.broker
	limited, cancel := context.WithTimeout(ctx, b.cfg.ConnectTimeout)
	defer cancel()
	began := time.Now()
	// A broker that has just started refuses some requests for moments. Required does not fail for that.
	err := s.greet(limited)
	for attempt := 1; err != nil && b.cfg.Required && !answer.Lasts(err) && answer.Pause(limited, attempt) == nil; attempt++ {
		err = s.greet(limited)
	}
	switch {
	case err == nil:
		close(s.done)
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("pulsar: connect: %w", context.Cause(ctx))
	case answer.Lasts(err):
		return fmt.Errorf("pulsar: connect: %w", err)
	case b.cfg.Required:
		return answer.Down("connect", b.cfg.URL, fmt.Errorf(
			"no answer for %s: start the broker, or correct Config.URL (ONCEBOX_PULSAR_URL); Config.ConnectTimeout sets how long to wait: %w",
			time.Since(began).Round(time.Millisecond), err))
	}
	s.failed(err)
	b.log.WarnContext(ctx, "oncebox: Pulsar cannot be reached, so nothing is published or received; the connection is tried again until it "+
		"succeeds. Start the broker, or correct Config.URL (ONCEBOX_PULSAR_URL)", "url", adapters.Redacted(b.cfg.URL), "error", err)
	b.background.Go(func() { s.goOn(b.open) })
	return nil
}

const (
	// firstWord is the time between the first and the second log line about the wait for the broker; the time doubles with each further
	// line, up to lastWord.
	firstWord = 10 * time.Second
	lastWord  = 10 * time.Minute
)

// goOn tries until it succeeds or the connection is closed.
func (s *start) goOn(ctx context.Context) {
	b := s.broker
	began := time.Now()
	said, words := began, 1
	for attempt := 1; answer.Pause(ctx, attempt) == nil; attempt++ {
		err := s.greet(ctx)
		if err == nil {
			close(s.done)
			b.log.InfoContext(ctx, "oncebox: the connection to Pulsar is "+
				"open", "url", adapters.Redacted(b.cfg.URL), "waited", time.Since(began).Round(time.Millisecond))
			return
		}
		if ctx.Err() != nil {
			return
		}
		s.failed(err)
		if time.Since(said) < backoff.Exponential(words, firstWord, lastWord) {
			continue
		}
		said, words = time.Now(), words+1
		say := b.log.InfoContext
		if answer.Lasts(err) {
			say = b.log.ErrorContext // an error that lasts: somebody has to act
		}
		say(ctx, "oncebox: Pulsar still cannot be reached; the connection is tried "+
			"again", "url", adapters.Redacted(b.cfg.URL), "waited", time.Since(began).Round(time.Second), "error", err)
	}
}

// wait waits until the broker can be used.
func (s *start) wait(ctx context.Context, call string) error {
	b := s.broker
	if !s.isUnder() {
		return nil
	}
	select {
	case <-s.done:
		return nil
	case <-ctx.Done():
		return answer.Down(call, adapters.Redacted(b.cfg.URL), fmt.Errorf("%w; the last error was: %w", context.Cause(ctx), s.why()))
	case <-b.open.Done():
		return answer.Down(call, adapters.Redacted(b.cfg.URL), s.why())
	}
}

// greet returns nil as soon as the broker has answered and the topics and subscriptions of Config exist.
func (s *start) greet(ctx context.Context) error {
	b := s.broker
	// A request of the client to a broker that is away takes long and cannot be cancelled. So it is sent only if the address accepts
	// connections.
	address, err := s.listening(ctx)
	if err != nil {
		return err
	}
	topic := b.keeper.FullName("oncebox")
	if len(b.cfg.Topics) > 0 {
		topic = b.keeper.FullName(b.cfg.Topics[0])
	}
	asking, answered := context.WithCancelCause(ctx)
	defer answered(nil)
	s.asking(answered)
	defer s.asking(nil)
	b.background.Go(func() {
		if backoff.Wait(asking, time.Second) != nil {
			return
		}
		if err := s.wrongPort(asking, address); err != nil { // a broker would have answered within that second
			answered(err)
		}
	})
	_, _, err = answer.Once(asking, &b.background, func() ([]string, error) { return b.client.TopicPartitions(topic) }, func([]string) {})
	switch {
	case err == nil || answer.Came(err): // an answer such as "no such topic" is enough
	case errors.Is(err, answer.ErrNotLetIn):
		return fmt.Errorf("%s: %w", adapters.Redacted(b.cfg.URL), err)
	case errors.Is(err, answer.ErrWrongPort):
		return err
	default:
		return errors.Join(err, s.wrongPort(ctx, address))
	}
	b.keeper.HasAdmin(ctx)
	return b.declare(ctx, b.cfg.Topics, b.cfg.Subscriptions)
}

// listening returns the first address of the broker that accepts a TCP connection.
func (s *start) listening(ctx context.Context) (address string, err error) {
	dialer := net.Dialer{Timeout: s.broker.cfg.ConnectionTimeout}
	var errs []error
	for _, host := range s.broker.cfg.hosts() {
		conn, err := dialer.DialContext(ctx, "tcp", host)
		if err == nil {
			return host, conn.Close()
		}
		errs = append(errs, err)
	}
	return "", errors.Join(errs...)
}

// wrongPort returns an error if a web server answers at the address. A broker closes the connection.
func (s *start) wrongPort(ctx context.Context, address string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address, nil)
	if err != nil {
		return nil //nolint:nilerr // the caller has a better one
	}
	client := http.Client{
		Transport: &http.Transport{DisableKeepAlives: true}, Timeout: s.broker.cfg.ConnectionTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil //nolint:nilerr // it does not speak HTTP
	}
	return errors.Join(fmt.Errorf("%s: %w", address, answer.ErrWrongPort), resp.Body.Close())
}
