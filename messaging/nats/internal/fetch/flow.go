package fetch

import (
	"context"
	"errors"
	"fmt"
	"time"

	natsclient "github.com/nats-io/nats.go"

	"github.com/oncebox/oncebox/messaging/nats/internal/session"
	"github.com/oncebox/oncebox/messaging/nats/internal/streams"
)

// flow fetches the messages of one spell. At most one request is under way.
type flow struct {
	partition *partition
	pull      *pull
	spell     *spell
	next      uint64 // the number that the next delivery must have

	asked    time.Time // when the last request was sent
	heard    time.Time // when the server said something last
	wants    int       // how many messages it still brings; 0: none is under way
	answered bool      // the server has answered it, if only in part
	leaving  time.Time // when the partition has to be given up at the latest, zero if it need not be
	extended time.Time // when extend last sent something
}

// run fetches until the spell ends, and returns the reason. When the receiver closes, or the partition is not wanted any more, it gives the partition up
// in order.
func (f *flow) run(ctx context.Context) error {
	f.extended = time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		if f.leave() {
			return f.giveUp(errUnwanted)
		}
		if f.hasLapsed() {
			return errLapsed
		}
		if err := f.request(); err != nil {
			return err
		}
		timer.Reset(time.Until(f.due()))
		select {
		case m := <-f.pull.in:
			if err := f.accept(m); err != nil {
				return err
			}
		case <-f.partition.look:
		case <-timer.C:
			if err := f.tick(); err != nil {
				return err
			}
		case <-ctx.Done():
			if f.partition.receiver.IsClosed() {
				return f.giveUp(context.Cause(ctx))
			}
			return context.Cause(ctx)
		}
	}
}

// leave reports whether the time to give the partition up has come: it is not wanted any more, and its handlers have ended, or have had their time.
func (f *flow) leave() bool {
	r := f.partition.receiver
	r.mu.Lock()
	defer r.mu.Unlock()
	if f.partition.wanted && f.leaving.IsZero() {
		return false
	}
	if f.leaving.IsZero() {
		f.leaving = time.Now().Add(max(r.config.HandoverTimeout, 0))
		r.drop(f.spell)
	}
	return f.spell.held == 0 || !time.Now().Before(f.leaving)
}

// hasLapsed reports whether messages were dropped because the server may have chosen another process, see [Receiver.next].
func (f *flow) hasLapsed() bool {
	f.partition.receiver.mu.Lock()
	defer f.partition.receiver.mu.Unlock()
	return f.spell.over && f.leaving.IsZero()
}

// request asks for messages if there is room for some, and otherwise only says that this process is alive, often enough.
func (f *flow) request() error {
	if f.wants > 0 {
		return nil
	}
	n, maxBytes := f.room(), 0
	if n == 0 {
		if f.partition.shared || time.Since(f.asked) < f.partition.every() {
			return nil
		}
		n, maxBytes = 1, 1
	}
	f.asked, f.wants, f.answered = time.Now(), n, false
	f.heard = f.asked
	err := f.pull.ask(n, maxBytes, f.partition.expires(), f.partition.heartbeat())
	if err == nil && f.partition.shared && !session.IsDone(f.partition.begun) {
		close(f.partition.begun)
	}
	return err
}

// room returns how many messages to ask for. It is 0 until half of the queue is free: requests for single messages would cost more than they bring.
func (f *flow) room() int {
	r := f.partition.receiver
	r.mu.Lock()
	defer r.mu.Unlock()
	free := r.subscription.Queue - f.spell.waiting
	if r.IsPaused() || !f.leaving.IsZero() || free < max(1, r.subscription.Queue/2) {
		return 0
	}
	return free
}

// due returns when tick has something to do.
func (f *flow) due() time.Time {
	due := f.asked.Add(f.partition.every())
	if f.wants > 0 {
		due = f.late()
	}
	if !f.leaving.IsZero() && f.leaving.Before(due) {
		due = f.leaving
	}
	if extend := f.extended.Add(f.partition.every()); f.partition.shared && (f.wants == 0 || extend.Before(due)) {
		due = extend
	}
	return due
}

// tick is called when a request should have been answered, when it is time for the next one, or when messages have been in work for long.
func (f *flow) tick() error {
	f.extend()
	if f.wants > 0 && !time.Now().Before(f.late()) {
		return errSilent
	}
	return nil
}

// late returns when the server should have answered the present request, or should have said that it still has it.
func (f *flow) late() time.Time {
	if f.partition.shared {
		return f.heard.Add(f.partition.timeout)
	}
	return f.asked.Add(f.partition.expires() + f.partition.every())
}

// accept takes a message, or what the server says about a request.
func (f *flow) accept(m *natsclient.Msg) error {
	f.heard = time.Now()
	switch said := statusOf(m); {
	case said == nil:
		f.isAlive()
		return f.take(m)
	case errors.Is(said, errIdle):
	case errors.Is(said, errExpired), errors.Is(said, errTooSmall):
		f.isAlive()
		f.wants = 0
	case errors.Is(said, errUnpinned):
		f.partition.pin = ""
		return said
	default:
		return said
	}
	return nil
}

// take takes a message, if it is the next one.
func (f *flow) take(m *natsclient.Msg) error {
	f.wants--
	md, err := m.Metadata()
	if err != nil {
		return fmt.Errorf("a message without metadata: %w", err)
	}
	if !f.partition.shared && md.Sequence.Consumer != f.next {
		return errGap
	}
	f.next++
	f.enqueue(m, md)
	return nil
}

// isAlive notes that the server has received the last request. It will not choose another process for a while after that.
func (f *flow) isAlive() {
	if f.answered || f.partition.shared {
		return
	}
	f.answered = true
	f.partition.until = f.asked.Add(f.partition.timeout)
	f.partition.receiver.mu.Lock()
	defer f.partition.receiver.mu.Unlock()
	f.spell.until = f.partition.until
}

// enqueue puts a message into the queue of the receiver. The server delivers a message again that has been in work for long; that copy is ignored.
func (f *flow) enqueue(m *natsclient.Msg, md *natsclient.MsgMetadata) {
	r := f.partition.receiver
	r.mu.Lock()
	defer r.mu.Unlock()
	if d := f.spell.open[md.Sequence.Stream]; d != nil {
		if !d.left {
			return
		}
		f.spell.left--
	}
	r.last++
	d := &delivery{receiver: r, spell: f.spell, msg: m, md: md, number: r.last, attempts: int(md.NumDelivered) - 1} //nolint:gosec // few
	f.spell.open[md.Sequence.Stream] = d
	r.put(d)
}

// extend reports the messages of a shared subscription as being in work. Otherwise the server would give them to another process.
func (f *flow) extend() {
	if !f.partition.shared || time.Since(f.extended) < f.partition.every() {
		return
	}
	f.extended = time.Now()
	for _, d := range f.unsettled(false) {
		_ = f.pull.conn.Publish(d.msg.Reply, inProgress) // without a connection the spell is over
	}
}

// unsettled returns the messages that are not settled. withLeft says whether a message that was left at the broker counts.
func (f *flow) unsettled(withLeft bool) []*delivery {
	f.partition.receiver.mu.Lock()
	defer f.partition.receiver.mu.Unlock()
	all := make([]*delivery, 0, len(f.spell.open))
	for _, d := range f.spell.open {
		if withLeft || !d.left {
			all = append(all, d)
		}
	}
	return all
}

// goodbye is how long the server may take to answer the last requests of a spell.
const goodbye = 2 * time.Second

// giveUp hands the partition to the next process. The server confirms the last acknowledgement, so it has taken all of them: the next process gets no
// message that was settled here. Of a shared subscription, other processes get at once what is not settled.
func (f *flow) giveUp(why error) error {
	is := f.partition.receiver.session
	ctx, cancel := context.WithTimeout(context.Background(), goodbye)
	defer cancel()
	f.partition.receiver.mu.Lock()
	last, ours := f.spell.lastAck, f.spell.isOurs() || !f.leaving.IsZero() && time.Now().Before(f.spell.until)
	f.partition.receiver.drop(f.spell)
	f.partition.receiver.mu.Unlock()
	f.pull.close()
	if f.partition.shared {
		for _, d := range f.unsettled(true) {
			_ = is.Conn.Publish(d.msg.Reply, nak) // without a connection they come again after Config.TakeoverTimeout
		}
	}
	if last != "" {
		_, _ = is.Conn.RequestWithContext(ctx, last, ack) // without an answer some messages may come again
	} else {
		_ = is.Conn.FlushWithContext(ctx)
	}
	if !f.partition.shared && ours {
		f.partition.pin = ""
		// Without an answer the next process waits until the server misses this one. After the reset there are messages to deliver, so the server
		// chooses it at once.
		if len(f.unsettled(true)) > 0 {
			_ = f.partition.reset(ctx)
		}
		_ = is.Ask(ctx, f.partition.stream.Name, func(ctx context.Context) error {
			return f.partition.stream.Handle.UnpinConsumer(ctx, f.partition.consumer, streams.Group)
		})
	}
	return why
}
