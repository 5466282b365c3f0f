package diagnosis

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/oncebox/oncebox/messaging"
)

// Topic is what an adapter has read about a topic at its broker.
type Topic struct {
	// Name is the logical topic.
	Name string
	// Retained is how long the broker may deliver a message again; -1 means without a limit. Default: it is not known, or the broker keeps nothing.
	Retained time.Duration
	// Subscriptions are the subscriptions of the topic.
	Subscriptions []Subscription
	// Publishers are the services that publish to the topic at present, as far as the broker knows them.
	Publishers []Publisher
	// Unused says that nobody publishes to the topic or ever has, see [UseReader]. Default: somebody has, or the broker does not know.
	Unused bool
}

// Publisher is a service and its database.
type Publisher struct {
	// Source is the name of the service, Installation the id of its database. Both are empty for a program that does not use oncebox.
	Source, Installation string
}

// Subscription is what an adapter has read about a subscription at its broker.
type Subscription struct {
	// Name is the name of the subscription.
	Name string
	// Owner is the service that the subscription belongs to. The zero value means that the broker does not store it.
	Owner Publisher
	// Unordered says that messages of one key may be with several consumers at once.
	Unordered bool
	// Waiting is the number of messages that wait, Consumers that of the connected consumers, and Unattended that of the partitions that have
	// messages and no consumer.
	Waiting               int64
	Consumers, Unattended int
	// Remove is the command that removes the subscription for good.
	Remove string
}

// Compare finds the faults of topics that look the same at each broker: messages that nobody receives, a subscription that two services or two
// databases share, consumers without an order, a broker that remembers for longer than the inbox, and a subscription of this service at a topic to which
// nobody publishes. If one of the topics is in use and has a similar name, the finding names it.
func (e *Examination) Compare(ctx context.Context, topics []Topic) (found []Finding, err error) {
	for n := range topics {
		t := &topics[n]
		more, failed := e.compare(ctx, t)
		found = append(append(found, more...), e.unused(t, topics)...)
		err = errors.Join(err, failed)
	}
	return found, err
}

func (e *Examination) compare(ctx context.Context, t *Topic) ([]Finding, error) {
	about := "topic " + t.Name + ": "
	var found []Finding
	// The inbox recognizes a message that comes again only as long as it remembers it.
	if e.Remembers > 0 && (t.Retained == -1 || t.Retained > e.Remembers) {
		found = append(found, Find(Broker, Warning, "raise ONCEBOX_INBOX_RETENTION above "+length(t.Retained),
			about+"it keeps messages for %s, but the inbox remembers them only for %s: if a subscription is reset to an older message, messages are "+
				"handled twice", length(t.Retained), length(e.Remembers)))
	}
	for n := range t.Subscriptions {
		s := &t.Subscriptions[n]
		if s.Unattended > 0 && !e.isCutOff(t.Name, s.Name) {
			found = append(found, Find(Broker, Problem,
				"start a process of the service that runs the consumer; if the consumer no longer exists and its messages may be lost: "+s.Remove,
				about+"the subscription %s%s has %s, and no consumer %s", s.Name, ofService(s.Owner.Source), waiting(s.Waiting), where(s)))
		}
		if s.Unordered {
			found = append(found, Find(Broker, Warning, "use Failover (the default) or KeyShared for consumers that need the order",
				about+"the subscription %s is of type Shared, so messages with one ordering key may be handled out of order", s.Name))
		}
		// A broker divides the messages of a subscription among all its consumers, whichever service they belong to.
		if owner := e.Owners[s.Name]; owner != "" && s.Owner.Source != "" && owner != s.Owner.Source {
			found = append(found, Find(Broker, Problem, "give one of the two services another name for its consumer",
				about+"the subscription %s belongs to the service %s, and in this database the consumer of that name belongs to %s: each gets a part of "+
					"the messages", s.Name, s.Owner.Source, owner))
		}
	}
	others, err := e.installations(ctx, t)
	return append(found, others...), err
}

func (e *Examination) isCutOff(topic, subscription string) bool {
	return slices.ContainsFunc(e.CutOff, func(s messaging.Subscription) bool { return s.Topic == topic && s.Name == subscription })
}

// installations finds other databases that use this service's name and have a subscription of the topic or publish to
// it. A message that goes to the other database is missing here.
func (e *Examination) installations(ctx context.Context, t *Topic) (found []Finding, err error) {
	if e.TakeOver == nil || e.Source == "" {
		return nil, nil
	}
	seen := map[string]string{} // what the other database does at the topic, by its installation id
	for _, p := range t.Publishers {
		if p.Source == e.Source {
			seen[p.Installation] = "publishes to it"
		}
	}
	for n := range t.Subscriptions {
		if s := &t.Subscriptions[n]; s.Owner.Source == e.Source {
			seen[s.Owner.Installation] = "has the subscription " + s.Name
		}
	}
	delete(seen, "") // the broker does not store whose it is
	for _, other := range slices.Sorted(maps.Keys(seen)) {
		takeOver, err := e.TakeOver(ctx, other)
		if err != nil {
			return found, err
		}
		if takeOver == "" {
			continue
		}
		found = append(found, Find(Broker, Problem, "correct ONCEBOX_DATABASE_URL and ONCEBOX_SCHEMA of one of the two, "+
			"or give one another ONCEBOX_SOURCE; if this database has taken the place of the other one for good: "+takeOver,
			"topic %s: the service %s with another database (installation %s) %s: of two that run, each has a part of the events",
			t.Name, e.Source, other, seen[other]))
	}
	return found, nil
}

// length writes -1, which stands for no limit, so that it fits behind "for".
func length(d time.Duration) string {
	if d == -1 {
		return "ever"
	}
	return d.String()
}

// ofService returns "" for a subscription whose service is unknown.
func ofService(source string) string {
	if source == "" {
		return ""
	}
	return " of the service " + source
}

func waiting(n int64) string {
	if n == 1 {
		return "1 message that waits"
	}
	return fmt.Sprintf("%d messages that wait", n)
}

// where returns which part of the subscription has no consumer: some partitions, or all.
func where(s *Subscription) string {
	if s.Consumers > 0 {
		return fmt.Sprintf("in %d of its partitions", s.Unattended)
	}
	return "is connected"
}
