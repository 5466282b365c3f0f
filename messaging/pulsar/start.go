package pulsar

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/oncebox/oncebox/internal/backoff"
	"github.com/oncebox/oncebox/messaging"
)

// start is what happens between Connect and the first moment in which the broker can be used.
type start struct {
	done chan struct{} // closed when what Config declares is made

	mu     sync.Mutex
	last   error       // why it is not done yet
	refuse func(error) // ends the question that the broker is asked at present
}

// asking has refuse called when the broker does not let us in.
func (s *start) asking(refuse func(error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = refuse
}

// isRefused is told why the broker refused a connection. The client would try again until its time is over, and call it a connection error.
func (s *start) isRefused(reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuse != nil && strings.Contains(strings.ToLower(reason), "authenticat") {
		s.refuse(fmt.Errorf("%w: %s", errNotLetIn, reason))
	}
}

// isUnder tells whether the broker cannot be used yet.
func (s *start) isUnder() bool {
	select {
	case <-s.done:
		return false
	default:
		return true
	}
}

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

// begin tries once to reach the broker and to make what Config declares. If that fails in a way that passes, and the
// broker is not required at once, it goes on in the background.
func (b *Broker) begin(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, b.cfg.ConnectTimeout)
	defer cancel()
	began := time.Now()
	err := b.greet(limited)
	for attempt := 1; err != nil && b.cfg.Required && !lasts(err) && pause(limited, attempt) == nil; attempt++ {
		err = b.greet(limited)
	}
	switch {
	case err == nil:
		close(b.start.done)
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("pulsar: connect: %w", context.Cause(ctx))
	case lasts(err):
		return fmt.Errorf("pulsar: connect: %w", err)
	case b.cfg.Required:
		return brokerDown("connect", b.cfg.URL, fmt.Errorf(
			"no answer for %s: start the broker, or correct Config.URL (ONCEBOX_PULSAR_URL); Config.ConnectTimeout sets how long to wait: %w",
			time.Since(began).Round(time.Millisecond), err))
	}
	b.start.failed(err)
	b.log.WarnContext(ctx, "oncebox: Pulsar cannot be reached and is waited for, nothing is published or received meanwhile; "+
		"start the broker, or correct Config.URL (ONCEBOX_PULSAR_URL)", "url", redacted(b.cfg.URL), "error", err)
	b.background.Go(func() { b.wait(b.open) })
	return nil
}

const (
	// firstWord is when it is said for the second time that the broker is waited for; each further time takes twice as long, up to
	// lastWord.
	firstWord = 10 * time.Second
	lastWord  = 10 * time.Minute
)

// wait tries until it succeeds or the connection is closed.
func (b *Broker) wait(ctx context.Context) {
	began := time.Now()
	said, words := began, 1
	for attempt := 1; pause(ctx, attempt) == nil; attempt++ {
		err := b.greet(ctx)
		if err == nil {
			close(b.start.done)
			b.log.InfoContext(ctx, "oncebox: Pulsar is reached", "url", redacted(b.cfg.URL), "waited", time.Since(began).Round(time.Millisecond))
			return
		}
		if ctx.Err() != nil {
			return
		}
		b.start.failed(err)
		if time.Since(said) < backoff.Exponential(words, firstWord, lastWord) {
			continue
		}
		said, words = time.Now(), words+1
		say := b.log.InfoContext
		if lasts(err) {
			say = b.log.ErrorContext // somebody has to do something
		}
		say(ctx, "oncebox: Pulsar is still waited for", "url", redacted(b.cfg.URL), "waited", time.Since(began).Round(time.Second), "error", err)
	}
}

// started waits until the broker can be used.
func (b *Broker) started(ctx context.Context, call string) error {
	if !b.start.isUnder() {
		return nil
	}
	select {
	case <-b.start.done:
		return nil
	case <-ctx.Done():
		return brokerDown(call, redacted(b.cfg.URL), fmt.Errorf("%w, last: %w", context.Cause(ctx), b.start.why()))
	case <-b.open.Done():
		return brokerDown(call, redacted(b.cfg.URL), b.start.why())
	}
}

// greet returns nil as soon as the broker has answered and made what Config declares.
func (b *Broker) greet(ctx context.Context) error {
	// The client's request to a broker that is away takes its time, and cannot be told to stop. So it is asked only if somebody listens.
	address, err := b.listening(ctx)
	if err != nil {
		return err
	}
	topic := b.fullName("oncebox")
	if len(b.cfg.Topics) > 0 {
		topic = b.fullName(b.cfg.Topics[0])
	}
	asking, answered := context.WithCancelCause(ctx)
	defer answered(nil)
	b.start.asking(answered)
	defer b.start.asking(nil)
	b.background.Go(func() {
		if backoff.Wait(asking, time.Second) != nil {
			return
		}
		if err := b.wrongPort(asking, address); err != nil { // a broker has answered by now
			answered(err)
		}
	})
	_, _, err = once(asking, &b.background, func() ([]string, error) { return b.client.TopicPartitions(topic) }, func([]string) {})
	switch {
	case err == nil || isAnswer(err): // no such topic, says the broker
	case errors.Is(err, errNotLetIn):
		return fmt.Errorf("%s: %w", redacted(b.cfg.URL), err)
	case errors.Is(err, errWrongPort):
		return err
	default:
		return errors.Join(err, b.wrongPort(ctx, address))
	}
	b.hasAdmin(ctx)
	return b.declare(ctx, b.cfg.Topics, b.cfg.Subscriptions)
}

// listening returns the first address of the broker at which something listens.
func (b *Broker) listening(ctx context.Context) (address string, err error) {
	u, err := url.Parse(b.cfg.URL)
	if err != nil {
		return "", err
	}
	port := "6650"
	if u.Scheme == "pulsar+ssl" {
		port = "6651"
	}
	dialer := net.Dialer{Timeout: b.cfg.ConnectionTimeout}
	var errs []error
	for host := range strings.SplitSeq(u.Host, ",") {
		if _, _, err := net.SplitHostPort(host); err != nil {
			host = net.JoinHostPort(strings.Trim(host, "[]"), port)
		}
		conn, err := dialer.DialContext(ctx, "tcp", host)
		if err == nil {
			return host, conn.Close()
		}
		errs = append(errs, err)
	}
	return "", errors.Join(errs...)
}

// errWrongPort is about an address at which something else than a broker answers.
var errWrongPort = errors.New("this is a web server, perhaps Pulsar's admin API, and not the broker: " +
	"Config.URL (ONCEBOX_PULSAR_URL) takes the broker's own port, usually 6650, and " +
	"Config.AdminURL (ONCEBOX_PULSAR_ADMIN_URL) the other, usually http and 8080")

// wrongPort returns an error if a web server answers. A broker hangs up.
func (b *Broker) wrongPort(ctx context.Context, address string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address, nil)
	if err != nil {
		return nil //nolint:nilerr // the caller has a better one
	}
	client := http.Client{
		Transport: &http.Transport{DisableKeepAlives: true}, Timeout: b.cfg.ConnectionTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil //nolint:nilerr // it does not speak HTTP
	}
	return errors.Join(fmt.Errorf("%s: %w", address, errWrongPort), resp.Body.Close())
}

// lasts tells whether an error is the broker's or the configuration's last word, in contrast to an error that may pass by waiting.
func lasts(err error) bool {
	if isForeign(err) {
		return true
	}
	answer, ok := errors.AsType[*adminError](err)
	return ok && answer.status < http.StatusInternalServerError || isNotLetIn(err) || isTopicTrouble(err) || errors.Is(err, errWrongPort)
}

// undeclared gives what made a declaration fail its class, and says what to do.
func (b *Broker) undeclared(ctx context.Context, err error) error {
	switch {
	case isMissing(err):
		return b.nowhere(ctx, err)
	case lasts(err), errors.Is(err, messaging.ErrBrokerDown):
		return err
	default:
		return brokerDown("declare", redacted(b.cfg.URL), err)
	}
}

// nowhere says which part of a topic's name is missing, as far as that is known, and how to make it.
func (b *Broker) nowhere(ctx context.Context, err error) error {
	tenant := "tenant " + strconv.Quote(b.cfg.Tenant) + " (ONCEBOX_PULSAR_TENANT), made by: pulsar-admin tenants create " + b.cfg.Tenant
	name := b.cfg.Tenant + "/" + b.cfg.Namespace
	namespace := "namespace " + strconv.Quote(name) + " (ONCEBOX_PULSAR_NAMESPACE), made by: pulsar-admin namespaces create " + name
	if reached, _ := b.presence.know(); reached {
		switch {
		case isStatus(b.admin.do(ctx, http.MethodGet, "/namespaces/"+b.cfg.Tenant, "", nil), http.StatusNotFound):
			return fmt.Errorf("there is no %s; then its namespace: pulsar-admin namespaces create %s/%s: %w", tenant, b.cfg.Tenant, b.cfg.Namespace, err)
		case isStatus(b.admin.do(ctx, http.MethodGet, "/namespaces/"+b.admin.namespace+"/retention", "", nil), http.StatusNotFound):
			return fmt.Errorf("there is no %s: %w", namespace, err)
		}
		return err
	}
	return fmt.Errorf("is there a %s; a %s; or may nobody make topics by using them? %w", tenant, namespace, err)
}

// unknownPlace names the place of a topic that the broker does not know, where there is no time to ask for more.
func (b *Broker) unknownPlace(err error) error {
	if !isMissing(err) {
		return err
	}
	return fmt.Errorf("the broker knows no such topic, tenant %q (ONCEBOX_PULSAR_TENANT) or namespace %q (ONCEBOX_PULSAR_NAMESPACE), "+
		"and may not make topics by themselves; declare it (ONCEBOX_PULSAR_TOPICS): %w", b.cfg.Tenant, b.cfg.Namespace, err)
}
