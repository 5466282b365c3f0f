package main

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// part is the task of one process of an arrangement, with the addresses of the servers. The process reads it from its
// standard input and answers "ready". It begins to write events when it reads another word. It ends with its record,
// when all events are written and received, or when its input ends.
type part struct {
	API, Projector, Consumer bool
	Floor                    bool // by hand
	PollOnly                 bool
	Profile                  string

	DSN, Schema              string
	Pulsar, Admin, Namespace string
	Rate, Versions           int
}

// with returns the part with what all parts of a run have in common.
func (p part) with(common part) part {
	common.API, common.Projector, common.Consumer, common.Floor, common.PollOnly = p.API, p.Projector, p.Consumer, p.Floor, p.PollOnly
	return common
}

// String returns the roles of the process, such as "api+consumer".
func (p part) String() string {
	var roles []string
	for _, r := range []struct {
		name string
		has  bool
	}{{"api", p.API}, {"projector", p.Projector}, {"consumer", p.Consumer}} {
		if r.has {
			roles = append(roles, r.name)
		}
	}
	return strings.Join(roles, "+")
}

func (p part) events() int { return p.Versions * latencyAccounts }

// member is such a process, seen from the process that measures.
type member struct {
	*child

	part part
	got  *record // nil until it is read
}

// launch starts a process and waits until it is ready.
func launch(ctx context.Context, p part) (*member, error) {
	c, err := spawn(ctx, "latency", p, new(bool))
	if err != nil {
		return nil, fmt.Errorf("the process of the %s: %w", p, err)
	}
	return &member{child: c, part: p}, nil
}

// write orders the process to write its events, and returns when it and the consumer have ended by themselves. When that takes
// too long, the events that came are counted.
func (m *member) write(ctx context.Context, consumer *member) error {
	if err := m.say.Encode("go"); err != nil {
		return fmt.Errorf("start the writer: %w", err)
	}
	if err := m.read(); err != nil {
		return err
	}
	patience, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	defer context.AfterFunc(patience, func() { _ = consumer.in.Close() })()
	return consumer.read()
}

func (m *member) read() error {
	if m.got != nil {
		return nil
	}
	got := &record{}
	if err := m.out.Decode(got); err != nil {
		return fmt.Errorf("the process of the %s ended without a record, its standard error says why: %w", m.part, err)
	}
	m.got = got
	return nil
}

// end ends the process and adds what it saw.
func (m *member) end(seen *record) error {
	_ = m.in.Close() // it may have ended
	err := m.read()
	if err == nil {
		seen.Committed = append(seen.Committed, m.got.Committed...)
		seen.Handed = append(seen.Handed, m.got.Handed...)
		seen.Arrived = append(seen.Arrived, m.got.Arrived...)
	}
	if failed := m.cmd.Wait(); failed != nil {
		err = errors.Join(err, fmt.Errorf("the process of the %s: %w", m.part, failed))
	}
	return err
}

var errInputEnded = errors.New("the process that measures has ended, or wants no more")

// runPart is the process.
func runPart(ctx context.Context, in io.Reader, out io.Writer) (err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	input, output := gob.NewDecoder(in), gob.NewEncoder(out)
	var p part
	if err := input.Decode(&p); err != nil {
		return fmt.Errorf("read the part: %w", err)
	}
	stop, err := (&profiles{cpu: p.Profile}).start()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	start := make(chan struct{})
	go func() {
		var word string
		if input.Decode(&word) == nil {
			close(start)
			_ = input.Decode(&word) // until the input ends
		}
		cancel(errInputEnded)
	}()
	seen := &record{}
	if err := p.play(ctx, seen, start, func() error { return output.Encode(true) }); err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("%w: %w", context.Cause(ctx), err) // "context canceled" alone does not name the cause
		}
		return fmt.Errorf("the %s: %w", p, err)
	}
	return output.Encode(seen)
}

// role is something that a process does: open, then run. It ends with its context, and sooner if it comes to an end.
type role struct {
	run     func(ctx context.Context) error
	close   func() error
	endless bool
}

// play runs the roles of the part until all that end have ended, or until ctx is done.
func (p part) play(ctx context.Context, seen *record, start <-chan struct{}, ready func() error) (err error) {
	var roles []role
	defer func() {
		for _, r := range roles {
			err = errors.Join(err, r.close())
		}
	}()
	for _, open := range p.openers() {
		r, err := open(ctx, seen, start)
		if err != nil {
			return err
		}
		roles = append(roles, r)
	}
	if err := ready(); err != nil {
		return err
	}
	endless, finish := context.WithCancel(ctx)
	defer finish()
	var finite, group errgroup.Group
	ends := false
	for _, r := range roles {
		if r.endless {
			group.Go(func() error { return r.run(endless) })
		} else {
			ends = true
			finite.Go(func() error { return r.run(ctx) })
		}
	}
	err = finite.Wait()
	if ends {
		finish()
	}
	return errors.Join(err, group.Wait())
}

func (p part) openers() []func(context.Context, *record, <-chan struct{}) (role, error) {
	var out []func(context.Context, *record, <-chan struct{}) (role, error)
	add := func(wanted bool, byHand, ours func(context.Context, *record, <-chan struct{}) (role, error)) {
		switch {
		case wanted && p.Floor:
			out = append(out, byHand)
		case wanted:
			out = append(out, ours)
		}
	}
	add(p.Consumer, p.openRawConsumer, p.openConsumer)
	add(p.Projector, nil, p.openProjector)
	add(p.API, p.openRawAPI, p.openAPI)
	return out
}
