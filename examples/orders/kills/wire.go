package kills

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// Wire reads what was published with the client of the broker, and with nothing of the adapter: a mistake of the adapter's reading would hide a mistake
// of its publishing.
type Wire interface {
	// Read returns the messages of the topic of the orders, those of each partition in their order. It is called once, when nothing is published any
	// more. Messages of earlier trials may be among them.
	Read(ctx context.Context) ([]Message, error)
}

// Message is a message as the client of the broker shows it.
type Message struct {
	// Partition is the number of the part of the topic in which the message was. An order must not change its partition.
	Partition int
	// Key is the broker's key of the message. Default: the attribute partitionkey, for brokers whose messages have no key.
	Key string
	// Attributes are the attributes of CloudEvents, without the prefix that they have at this broker.
	Attributes map[string]string
	// Payload is the body.
	Payload []byte
}

// factsOf returns what the messages say. Events from before the trial are left out.
func factsOf(messages []Message, began time.Time) (facts []fact, err error) {
	for n := range messages {
		m := &messages[n]
		f, at, err := m.fact()
		if err != nil {
			return nil, fmt.Errorf("message %d on the wire, with the attributes %v: %w", n, m.Attributes, err)
		}
		if !at.Before(began) {
			facts = append(facts, f)
		}
	}
	return facts, nil
}

// fact returns the event of a message, and when it happened.
func (m *Message) fact() (f fact, at time.Time, err error) {
	a := m.Attributes
	f = fact{orderKey: orderKey{a["tenantid"], a["subject"]}, id: a["id"], kind: a["type"], partition: m.Partition}
	if a["specversion"] != "1.0" || f.id == "" {
		return f, at, errors.New("the attributes specversion and id have to be 1.0 and the id of the event")
	}
	if key := cmp.Or(m.Key, a["partitionkey"]); key != f.orderKey.id {
		return f, at, fmt.Errorf("it has the key %q and is about %q", key, f.orderKey.id)
	}
	if f.version, err = strconv.ParseInt(a["aggregateversion"], 10, 64); err != nil {
		return f, at, err
	}
	if at, err = time.Parse(time.RFC3339Nano, a["time"]); err != nil {
		return f, at, err
	}
	cents, err := centsOf(m.Payload)
	f.cents = cents[f.kind]
	return f, at, err
}
