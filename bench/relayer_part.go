package main

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/pulsar"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/projector"
)

// errand is what a projector in a process of its own has to do. It comes to the process on its standard input. The
// process answers with an empty publication when it is ready, then with each that it made. It hands its lanes back when
// its input ends.
type errand struct {
	Name, DSN, Schema               string
	Pulsar, Admin, Namespace, Topic string
	Profile                         string
}

func (n *namespace) errand(name string, s *schema, topic, profile string) errand {
	return errand{
		Name: name, DSN: s.dsn, Schema: s.name, Topic: topic, Profile: profile,
		Pulsar: n.server.URL, Admin: n.server.AdminURL, Namespace: n.name,
	}
}

// publication is one call of Publish.
type publication struct {
	By         string
	Begin, End time.Time
	Confirmed  int
	Lanes      uint64 // those of the messages, one bit each
}

// runRelayer is the process.
func runRelayer(ctx context.Context, in io.Reader, out io.Writer) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var e errand
	if err := gob.NewDecoder(in).Decode(&e); err != nil {
		return fmt.Errorf("read the errand: %w", err)
	}
	stop, err := (&profiles{cpu: e.Profile}).start()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	db, err := (&schema{dsn: e.DSN, name: e.Schema}).bun(pgx.QueryExecModeExec, 20)
	if err != nil {
		return err
	}
	defer db.Close()
	lanes, err := lanesOf(ctx, db)
	if err != nil {
		return err
	}
	b, err := pulsar.Connect(ctx, &pulsar.Config{
		URL: e.Pulsar, AdminURL: e.Admin, Namespace: e.Namespace, Topics: []string{e.Topic}, Partitions: partitions,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	to := &reporter{to: b, lanes: lanes, out: gob.NewEncoder(out)}
	p, err := projector.New(to, &projector.Config{Name: e.Name}, outbox.NewStore(db, &outbox.Config{Schema: e.Schema}))
	if err != nil {
		return err
	}
	if err := to.say(publication{}); err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, in)
		cancel()
	}()
	return p.Run(ctx)
}

// lanesOf returns the lane of each aggregate that a loader stores.
func lanesOf(ctx context.Context, db *bun.DB) (map[string]int, error) {
	rows, err := db.DB.QueryContext(ctx, "SELECT aggregate_id, lane FROM template")
	if err != nil {
		return nil, fmt.Errorf("find the lanes: %w", err)
	}
	defer rows.Close()
	lanes := map[string]int{}
	for rows.Next() {
		var id string
		var lane int
		if err := rows.Scan(&id, &lane); err != nil {
			return nil, fmt.Errorf("find the lanes: %w", err)
		}
		lanes[id] = lane
	}
	return lanes, rows.Err()
}

// reporter passes messages on and reports it.
type reporter struct {
	to    messaging.Publisher
	lanes map[string]int

	mu  sync.Mutex
	out *gob.Encoder
}

// Publish passes msgs on.
func (r *reporter) Publish(ctx context.Context, msgs []event.Envelope) error {
	p := publication{Begin: time.Now()}
	for i := range msgs {
		p.Lanes |= 1 << r.lanes[msgs[i].AggregateID]
	}
	err := r.to.Publish(ctx, msgs)
	p.End, p.Confirmed = time.Now(), confirmed(msgs, err)
	return errors.Join(err, r.say(p))
}

func (r *reporter) say(p publication) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.out.Encode(p); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}
