package messaging

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/oncebox/oncebox/event"
)

// SubscriptionType says how the consumers of one subscription share its messages.
type SubscriptionType int

const (
	// Failover gives each partition to one consumer at a time. Order per key. The default.
	Failover SubscriptionType = iota
	// KeyShared gives each key to one consumer at a time. Order per key, if producers do not mix keys in a batch.
	KeyShared
	// Shared gives any message to any consumer. No order.
	Shared
)

// String returns the name of the type.
func (t SubscriptionType) String() string {
	switch t {
	case Failover:
		return "failover"
	case KeyShared:
		return "key_shared"
	case Shared:
		return "shared"
	default:
		return fmt.Sprintf("SubscriptionType(%d)", int(t))
	}
}

// Subscription is a named, durable position in a topic. It starts at the earliest message, always: a subscription that
// started at the latest would lose what was published before its first consumer came.
type Subscription struct {
	// Topic is the logical topic. Required.
	Topic string
	// Name identifies the subscription; consumers with equal names share it. Required.
	Name string
	// Type says how they share it. Default: Failover.
	Type SubscriptionType
	// Queue is how many messages wait in this process. Default: 64.
	Queue int
	// Consumer names this instance, stable over restarts, so that a restart moves as few keys as possible.
	// Default: chosen by the adapter.
	Consumer string
	// Source names the service that the subscription belongs to. An adapter that can keep it with the subscription refuses another
	// source with a [*SourceError]: two services that share a subscription by mistake would each get a part of the messages.
	// Default: empty, it is not checked. [oncebox.App] gives its own.
	//
	// [oncebox.App]: https://pkg.go.dev/github.com/oncebox/oncebox#App
	Source string
	// Installation identifies the database of the service. An adapter that can keep it refuses another database with the same Source, with
	// an [*InstallationError]. Default: empty, it is not checked. Package inbox gives that of its database.
	Installation string
}

// SourceError says that a subscription belongs to another service.
type SourceError struct {
	// Topic and Subscription are the requested names.
	Topic, Subscription string
	// Owner is the source that the subscription belongs to, Source the refused source.
	Owner, Source string
	// Mend says how the subscription is given to Source, if the broker can do that.
	Mend string
}

func (e *SourceError) Error() string {
	text := fmt.Sprintf("messaging: subscription %q of topic %q belongs to the service %q, and this service is %q: sharing it, each would get "+
		"only a part of the messages. Choose another consumer name here; or, if both are the same service, give both the same source "+
		"(ONCEBOX_SOURCE)",
		e.Subscription, e.Topic, e.Owner, e.Source)
	if e.Mend != "" {
		text += "; if the service was renamed: " + e.Mend
	}
	return text
}

// Validate checks the names.
func (s Subscription) Validate() error {
	var errs []error
	if err := event.ValidateTopic(s.Topic); err != nil {
		errs = append(errs, fmt.Errorf("messaging: Subscription.Topic %q: %w", s.Topic, err))
	}
	switch {
	case s.Name == "":
		errs = append(errs, errors.New("messaging: Subscription.Name is empty"))
	case s.Name == "." || s.Name == ".." || strings.TrimSpace(s.Name) != s.Name:
		errs = append(errs, fmt.Errorf("messaging: Subscription.Name %q is a path, or begins or ends with a blank", s.Name))
	default:
		errs = append(errs, event.ValidateIdentifier("Subscription.Name", s.Name))
	}
	if s.Type < Failover || s.Type > Shared {
		errs = append(errs, fmt.Errorf("messaging: Subscription.Type %d is unknown", s.Type))
	}
	if s.Queue < 0 {
		errs = append(errs, errors.New("messaging: Subscription.Queue is negative"))
	}
	return errors.Join(append(errs, event.ValidateIdentifier("Subscription.Source", s.Source))...)
}

// ErrClosed is returned by a [Receiver] after Close.
var ErrClosed = errors.New("messaging: the receiver is closed")

// Receiver is one consumer of a subscription. Receive is called from one goroutine; the other methods from any.
type Receiver interface {
	// Receive waits for the next message. After a lost connection the adapter connects again, and Receive goes on waiting. It returns
	// ctx.Err() when ctx is done and [ErrClosed] after Close; any other error means that this receiver is dead and a new one must be
	// subscribed.
	Receive(ctx context.Context) (*Message, error)
	// Ack settles the message. The broker may lose it, so a message can come again after it.
	Ack(ctx context.Context, m *Message) error
	// Redeliver gives the message back unsettled, so that this or another consumer receives it again. Only messages of
	// an unordered subscription may be given back while later ones are being handled. [Consumer] never calls it, because it tries a
	// message again by itself. It is for a receive loop of one's own, which else could give a message back only by closing the receiver.
	Redeliver(ctx context.Context, m *Message) error
	// Pause stops the flow of messages, Resume starts it again.
	Pause()
	Resume()
	// Close hands back whatever was not settled, and releases the connection.
	Close() error
}

// InstallationError says that a subscription belongs to another installation of the service: to another database. A service that is started with the
// wrong database would get a part of the messages of the right one.
type InstallationError struct {
	// Topic and Subscription are the requested names, Source the service, which both databases share.
	Topic, Subscription, Source string
	// Owner is the installation that the subscription belongs to, Installation the refused one.
	Owner, Installation string
	// Mend says how this installation takes the place of the other one.
	Mend string
}

func (e *InstallationError) Error() string {
	text := fmt.Sprintf("messaging: subscription %q of topic %q belongs to service %q with another database (installation %s), and this database "+
		"is installation %s: sharing it, each would get only a part of the messages. Correct the address of this database (ONCEBOX_DATABASE_URL, "+
		"ONCEBOX_SCHEMA); or, if these are two services, give one of them another name (ONCEBOX_SOURCE) and its consumers other "+
		"names", e.Subscription, e.Topic, e.Source, e.Owner, e.Installation)
	if e.Mend != "" {
		text += "; if this database has taken the place of the other one for good: " + e.Mend
	}
	return text
}
