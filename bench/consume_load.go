package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/pulsar"
)

const (
	// One of copyEvery messages comes twice. Half of the copies follow their original at once, the others copyDistance
	// messages later, behind later messages of their account, as after a restart of the broker.
	copyEvery    = 100
	copyDistance = aggregates * 3 / 2

	// analyzeAccounts gives the planner the same statistics in every run.
	analyzeAccounts = `VACUUM ANALYZE account`
)

// consumption is one run: a topic full of messages, and what has happened to them.
type consumption struct {
	namespace *namespace
	schema    *schema
	broker    *pulsar.Broker
	topic     string
	ledger    *ledger
}

// openConsumption makes the topic with its subscription, and fills it.
func openConsumption(ctx context.Context, n *namespace, s *schema, work backlog) (*consumption, error) {
	c := &consumption{namespace: n, schema: s, topic: work.topic}
	var err error
	c.broker, err = pulsar.Connect(ctx, &pulsar.Config{
		URL: n.server.URL, AdminURL: n.server.AdminURL, Namespace: n.name, Partitions: partitions,
		Topics: []string{c.topic}, Subscriptions: []messaging.Subscription{c.subscription()},
	})
	if err != nil {
		return nil, err
	}
	if err = c.fill(ctx, work); err != nil {
		return nil, errors.Join(fmt.Errorf("fill the topic: %w", err), c.close(context.WithoutCancel(ctx)))
	}
	return c, nil
}

func (c *consumption) subscription() messaging.Subscription {
	return messaging.Subscription{Topic: c.topic, Name: source}
}

func (c *consumption) close(ctx context.Context) error {
	return errors.Join(c.broker.Close(), c.namespace.removeTopic(ctx, c.topic))
}

// fill publishes the backlog and the copies, as a projector does.
func (c *consumption) fill(ctx context.Context, work backlog) error {
	payload, err := newMoneyMoved(accountID(0)).encode()
	if err != nil {
		return err
	}
	later := map[int]event.Envelope{}
	var batch []event.Envelope
	copies := 0
	for i := range work.size() {
		env, err := work.envelope(i, payload)
		if err != nil {
			return err
		}
		batch = append(batch, env)
		switch {
		case i%(2*copyEvery) == 0:
			batch = append(batch, env)
			copies++
		case i%copyEvery == 0 && i+copyDistance < work.size():
			later[i+copyDistance] = env
			copies++
		}
		if env, due := later[i]; due {
			batch = append(batch, env)
			delete(later, i)
		}
		if len(batch) >= unitSize || i+1 == work.size() {
			if err := c.broker.Publish(ctx, batch); err != nil {
				return err
			}
			batch = batch[:0]
		}
	}
	c.ledger = &ledger{tally: work.tally(), all: work.size() + copies}
	return nil
}

// watch lets the variant consume everything, and returns CPU time and allocations per message.
func (c *consumption) watch(ctx context.Context, v *consumeVariant, m meter) (used usage, allocs float64, err error) {
	bound := time.Minute + time.Duration(c.ledger.all)*10*time.Millisecond // a hundred a second
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	c.ledger.done = cancel
	n := float64(c.ledger.all)
	runtime.GC() // no run pays for the garbage of another
	before, objects := m.read(), allocations()
	err = labelled(ctx, v.name, func(ctx context.Context) error { return v.run(ctx, c) })
	made := allocations() - objects // the reading of the CPU time makes objects too
	used, allocs = m.read().since(before, n), float64(made)/n
	if err == nil && !c.ledger.complete() {
		err = fmt.Errorf("%w: not all messages were settled within %s: %w", errWrong, bound, c.ledger.verdict())
	}
	return used, allocs, err
}

const countEffects = `
SELECT (SELECT sum(balance)::bigint FROM account), (SELECT count(*) FROM account WHERE balance <> $1), (SELECT count(*) FROM %s)`

// verify compares the stored effects of the handlers with the sent messages.
func (c *consumption) verify(ctx context.Context, inbox string) error {
	if inbox == "" {
		return c.ledger.verdict()
	}
	db, err := c.schema.bun(pgx.QueryExecModeExec, 1)
	if err != nil {
		return err
	}
	defer db.Close()
	var effects, wrong, entries int
	err = db.DB.QueryRowContext(ctx, fmt.Sprintf(countEffects, inbox), c.ledger.tally.versions).Scan(&effects, &wrong, &entries)
	if err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	if want := c.ledger.sent(); effects != want || wrong != 0 || entries != want {
		return fmt.Errorf("%w: %d messages were sent: %d effects, %d accounts with too many or too few, %d entries in the inbox: %w",
			errWrong, want, effects, wrong, entries, c.ledger.verdict())
	}
	return c.ledger.verdict()
}

// ledger follows the messages of a run through the process.
type ledger struct {
	all  int    // copies included
	done func() // called when so many are settled

	mu                sync.Mutex
	tally             *tally // of the handled messages
	received, settled int
	begin, end        time.Time
}

// receive records the arrival of a message. The clock starts with the first one, because the broker takes a second to
// choose the consumer of a partition.
func (l *ledger) receive() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.received == 0 {
		l.begin = time.Now()
	}
	l.received++
}

// handle records that a message is the first of its kind, and not a copy.
func (l *ledger) handle(account string, version int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tally.add(account, version)
}

// settle records that n messages were acknowledged.
func (l *ledger) settle(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.settled
	l.settled += n
	if before < l.all && l.settled >= l.all {
		l.end = time.Now()
		l.done()
	}
}

func (l *ledger) complete() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.settled >= l.all
}

func (l *ledger) took() time.Duration { return l.end.Sub(l.begin) }

// sent is how many messages there are, copies not included.
func (l *ledger) sent() int { return len(l.tally.seen) * l.tally.versions }

// verdict returns nil if every message was handled once and in order, and every copy has arrived.
func (l *ledger) verdict() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.tally.verdict()
	if l.received < l.all {
		err = errors.Join(err, fmt.Errorf("%w: %d of %d messages were received", errWrong, l.received, l.all))
	}
	return err
}
