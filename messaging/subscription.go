package messaging

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/oncebox/oncebox/event"
)

// SubscriptionType decides how the consumers of one subscription share its messages.
type SubscriptionType int

const (
	// Failover gives each partition to one consumer at a time, and keeps the order of each key. It is the default.
	Failover SubscriptionType = iota
	// KeyShared gives each key to one consumer at a time, and keeps its order if producers put messages of only one key into a batch.
	KeyShared
	// Shared gives each message to any consumer, without an order.
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

// Subscription is a named, durable position in a topic. A new one always starts at the earliest message: if it started at the latest, it would miss
// messages that were published before its first consumer.
type Subscription struct {
	// Topic is the logical topic. Required.
	Topic string
	// Name identifies the subscription within its topic. Consumers with the same name share it. Required.
	Name string
	// Type decides how consumers share the messages. Default: Failover.
	Type SubscriptionType
	// Queue is the number of messages that may wait in this process. Default: 64.
	Queue int
	// Consumer names this instance. Keep the name the same after a restart, so that few keys move. Default: chosen by the adapter.
	Consumer string
	// Source names the service that the subscription belongs to. An adapter that can store it with the subscription refuses another source with a
	// [*SourceError]: two services that share a subscription by mistake would each get a part of the messages. Default: empty, nothing is checked.
	// [oncebox.App] sets the name of its service.
	//
	// [oncebox.App]: https://pkg.go.dev/github.com/oncebox/oncebox#App
	Source string
	// Installation identifies the database of the service. An adapter that can store it refuses another database of the same Source with an
	// [*InstallationError]. Default: empty, nothing is checked. Package inbox sets that of its database.
	Installation string
}

// SourceError means that a subscription belongs to another service.
type SourceError struct {
	// Topic and Subscription are the names that were asked for.
	Topic, Subscription string
	// Owner is the service that the subscription belongs to, Source the service that was refused.
	Owner, Source string
	// Mend is how an operator gives the subscription to Source; empty if the broker cannot do that.
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

// Validate returns an error that names each field that cannot be used.
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

// ErrNoSuchType means that the broker has no subscriptions of this type. It comes within [Permanent], from Subscribe, from [Declarer] and from
// [Naming], so that [oncebox.App] reports it when the consumer is made.
//
// [oncebox.App]: https://pkg.go.dev/github.com/oncebox/oncebox#App
var ErrNoSuchType = errors.New("messaging: the broker has no subscriptions of this type")

// ErrClosed is returned by a [Receiver] after Close.
var ErrClosed = errors.New("messaging: the receiver is closed")

// Receiver is one consumer of a subscription. Call Receive from one goroutine at a time; the other methods may be called from any.
type Receiver interface {
	// Receive waits for the next message. After a lost connection the adapter connects again, and Receive goes on waiting. It returns
	// ctx.Err() when ctx is done and [ErrClosed] after Close; any other error means that this receiver is dead and a new one must be
	// subscribed.
	Receive(ctx context.Context) (*Message, error)
	// Ack settles the message. The broker may lose the acknowledgement, so the message can still come again.
	Ack(ctx context.Context, m *Message) error
	// Redeliver returns the message unsettled, so that this or another consumer receives it again. For a message that is settled it does nothing.
	// With an ordered subscription, no later message may be in work when it is called. [Consumer] never calls it, because it tries a message again by
	// itself. It is for receive loops of your own, which could otherwise return a message only by closing the receiver.
	Redeliver(ctx context.Context, m *Message) error
	// Pause stops receiving messages, and Resume starts it again.
	Pause()
	Resume()
	// Close returns unsettled messages to the broker and closes the connection.
	Close() error
}

// InstallationError means that a subscription belongs to another installation of the service, that is, to another database. A service that was
// started with the wrong database would otherwise get a part of the right one's messages.
type InstallationError struct {
	// Topic and Subscription are the names that were asked for. Source is the service, to which both databases belong.
	Topic, Subscription, Source string
	// Owner is the installation that the subscription belongs to, Installation the refused one.
	Owner, Installation string
	// Mend is how an operator gives the subscription to this installation.
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
