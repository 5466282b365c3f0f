//go:build unix && nightly

package endurance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/config"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/pulsar"
	"github.com/oncebox/oncebox/retry"
	"github.com/oncebox/oncebox/telemetry"
	"github.com/oncebox/oncebox/uow"
)

const (
	taskVariable = "ENDURANCE_TASK"
	consumerName = "effects"
	// parkedLease is the longest lease of a consumer in the database; the broker's is the keep-alive.
	parkedLease = 2 * time.Second
)

// task is what a process has to do.
type task struct {
	Name     string `json:"name"`
	Database string `json:"database"`
	Pulsar   string `json:"pulsar"`
	Admin    string `json:"admin"`
	Topic    string `json:"topic"`
	AckFirst bool   `json:"ack_first"`
	Relay    bool   `json:"relay"`
	Adopt    bool   `json:"adopt"`

	Serves     bool   `json:"serves"`
	Dependency string `json:"dependency"`
}

// beProcess is the life of a process: the exit code is that of the program.
func beProcess(text string) int {
	var t task
	if err := json.Unmarshal([]byte(text), &t); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // ends when the test has gone
		os.Exit(3)
	}()
	live := t.consume
	switch {
	case t.Serves:
		live = t.serve
	case t.Relay:
		live = t.relay
	case t.Adopt:
		live = t.adopt
	}
	if err := live(ctx); err != nil {
		fmt.Fprintln(os.Stderr, t.Name, err)
		return 1
	}
	return 0
}

// consume is a service with one consumer, as users write it.
func (t *task) consume(ctx context.Context) (err error) {
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	cfg := config.Config{
		DatabaseURL: t.Database, Telemetry: telemetry.Config{Logger: log},
		UoW:               uow.Config{Source: "endurance"},
		IdleInTransaction: parkedLease, // or a process that is frozen holds the keys that it is at
		Inbox: inbox.Config{Retry: inbox.RetryPolicy{Tries: 2, Policy: retry.Policy{Delay: 200 * time.Millisecond}}, ParkedLease: parkedLease,
			PollInterval: 200 * time.Millisecond},
		Consumer: messaging.ConsumerConfig{Retry: retry.Policy{Delay: 20 * time.Millisecond}},
	}
	db, err := config.OpenDB(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	broker, err := pulsar.Connect(ctx, &pulsar.Config{URL: t.Pulsar, AdminURL: t.Admin, Name: t.Name, ConnectTimeout: 2 * time.Minute,
		Telemetry: telemetry.Config{Logger: log}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, broker.Close()) }()
	app, err := oncebox.New(db, &countingBroker{Broker: broker, ackFirst: t.AckFirst}, cfg)
	if err != nil {
		return err
	}
	app.Consume(t.Topic, consumerName, messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
		return leaveEffect(ctx, app.UoW, t.Name, m)
	}), inbox.Instance(t.Name))
	return app.Run(ctx, oncebox.Consumers)
}

var errMoody = errors.New("not now")

// leaveEffect writes one row. Some messages of some keys fail twice before.
func leaveEffect(ctx context.Context, units *uow.Manager, process string, m *messaging.Message) error {
	_, err := units.DB(ctx).NewRaw("INSERT INTO effects (key, n, process) VALUES (?, ?, ?)", m.AggregateID, m.AggregateVersion, process).Exec(ctx)
	if err == nil && isMoody(&m.Envelope) && m.Attempt <= 2 {
		return errMoody
	}
	return err
}

// isMoody reports whether a message fails at first: a fifth of the messages of each tenth key do.
func isMoody(e *event.Envelope) bool { return isMoodyKey(e.AggregateID) && e.AggregateVersion%5 == 3 }

func isMoodyKey(key string) bool { return key[len(key)-1] == '0' }

// countingBroker reports each message that comes to the test, with one line.
type countingBroker struct {
	*pulsar.Broker

	ackFirst bool
}

// Subscribe joins a subscription.
func (b *countingBroker) Subscribe(ctx context.Context, s messaging.Subscription) (messaging.Receiver, error) {
	r, err := b.Broker.Subscribe(ctx, s)
	if err != nil {
		return nil, err
	}
	return &countingReceiver{Receiver: r, ackFirst: b.ackFirst}, nil
}

type countingReceiver struct {
	messaging.Receiver

	ackFirst bool
}

// Receive waits for a message.
func (r *countingReceiver) Receive(ctx context.Context) (*messaging.Message, error) {
	m, err := r.Receiver.Receive(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := fmt.Fprintf(os.Stdout, "%s #%d\n", m.AggregateID, m.AggregateVersion); err != nil {
		return nil, err
	}
	if r.ackFirst {
		return m, r.Receiver.Ack(ctx, m)
	}
	return m, nil
}

// Ack settles a message.
func (r *countingReceiver) Ack(ctx context.Context, m *messaging.Message) error {
	if r.ackFirst {
		return nil
	}
	return r.Receiver.Ack(ctx, m)
}
