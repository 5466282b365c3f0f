package fetch

import (
	"context"
	"errors"
	"fmt"
	"time"

	natsclient "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/oncebox/oncebox/messaging/nats/internal/session"
	"github.com/oncebox/oncebox/messaging/nats/internal/streams"
	"github.com/oncebox/oncebox/retry"
)

// partition fetches the messages of one consumer of the server: of a partition, or of a whole shared subscription.
//
// The server chooses one process at a time for a partition (a pinned client) and delivers to no other. That alone does not keep the order: what the
// former process did not settle comes again only later. So the process that was chosen resets the consumer to the first unsettled message before it
// accepts any. From there on the numbers of the deliveries must be 1, 2, 3 and so on. Whenever they are not, whatever the reason is, it resets again.
type partition struct {
	receiver *Receiver
	index    int
	stream   *streams.Stream
	consumer string
	shared   bool
	timeout  time.Duration // how long this process may be silent before the server chooses another one

	pin   string        // the last pin of this process
	until time.Time     // how long the server keeps it at least
	look  chan struct{} // a token: something has changed
	begun chan struct{} // closed when the first request of a shared subscription was sent

	// The receiver's mutex guards these fields.
	wanted bool // this receiver should have the partition, see members
	spell  *spell
}

// wake makes the goroutine of the partition look again. It never blocks.
func (p *partition) wake() {
	select {
	case p.look <- struct{}{}:
	default: // a token is there already
	}
}

// expires is how long the server may keep a request that it cannot answer. This process must ask for a partition in each interval. Between two
// requests of a shared subscription, its other consumers get all messages, so these are rare.
func (p *partition) expires() time.Duration {
	if p.shared {
		return 20 * p.timeout
	}
	return p.every()
}

// heartbeat is the interval at which the server shows that it still has a request, 0 if the request ends soon.
func (p *partition) heartbeat() time.Duration {
	if p.shared {
		return p.every()
	}
	return 0
}

// every is the interval between two requests of this process: two of them may get lost.
func (p *partition) every() time.Duration { return p.timeout / 3 }

// run fetches until ctx is done, or the consumer is gone.
func (p *partition) run(ctx context.Context) {
	pauses := retry.Policy{Delay: 50 * time.Millisecond, MaxDelay: 2 * time.Second}
	for failures := 0; ctx.Err() == nil; {
		lost, err := p.receiver.session.Wait(ctx)
		if err != nil {
			return // ctx is done
		}
		if !p.isWanted() {
			select {
			case <-p.look:
			case <-ctx.Done():
			}
			continue
		}
		began := time.Now()
		err = p.serve(ctx, lost)
		if errors.Is(err, natsclient.ErrNoResponders) {
			err = p.why(ctx, err)
		}
		switch {
		case ctx.Err() != nil:
		case isFinal(err):
			p.receiver.die(fmt.Errorf("consumer %s of stream %s: %w", p.consumer, p.stream.Name, err))
		case err == nil || errors.Is(err, errUnwanted) || session.IsDone(lost) || time.Since(began) > p.timeout:
			failures = 0
		default:
			failures++
		}
		if failures > 3 { // a few are normal while servers restart or processes change
			p.receiver.config.Log.WarnContext(ctx, "oncebox: the messages of a partition cannot be fetched; it is tried again", "topic", p.stream.Topic,
				"consumer", p.consumer, "error", err)
		}
		if failures > 0 {
			_ = pauses.Wait(ctx, failures) // an error means that ctx is done
		}
	}
}

// why finds out what it means that nobody answers requests for messages: the consumer is gone, or its leader is away for the moment.
func (p *partition) why(ctx context.Context, none error) error {
	_, err := p.info(ctx)
	if err != nil {
		return err
	}
	return none
}

// info asks for the present state of the consumer.
func (p *partition) info(ctx context.Context) (*jetstream.ConsumerInfo, error) {
	c, err := p.receiver.session.Consumer(ctx, p.stream.Name, p.consumer)
	if err != nil {
		return nil, err
	}
	return c.CachedInfo(), nil
}

func (p *partition) isWanted() bool {
	p.receiver.mu.Lock()
	defer p.receiver.mu.Unlock()
	return p.wanted
}

// serve waits until this process is chosen, and fetches messages for one spell.
func (p *partition) serve(ctx context.Context, lost <-chan struct{}) error {
	ctx, done := p.receiver.session.Watch(ctx, p.stream.Name) // requests for messages have no other answer if they are not permitted
	defer done()
	cut, end := context.WithCancelCause(ctx)
	defer end(nil)
	go func() {
		select {
		case <-lost:
			end(natsclient.ErrDisconnected)
		case <-cut.Done():
		}
	}()
	if !p.shared {
		if err := p.getChosen(cut); err != nil {
			return err
		}
	}
	messages, err := p.open()
	if err != nil {
		return err
	}
	defer messages.close()
	s := &spell{partition: p, open: map[uint64]*delivery{}}
	if !p.shared {
		s.until = p.until
	}
	p.setSpell(s)
	defer p.setSpell(nil)
	f := &flow{partition: p, pull: messages, spell: s, next: 1}
	return f.run(cut)
}

// open begins to listen for messages. Each spell has a subject of its own: what is still delivered to an earlier one is not seen.
func (p *partition) open() (*pull, error) {
	name := streams.Group
	if p.shared {
		name = ""
	}
	messages, err := pullOf(p.receiver.session, p.stream.Name, p.consumer, name, p.receiver.subscription.Queue)
	if err != nil {
		return nil, err
	}
	messages.pin = p.pin
	return messages, nil
}

// getChosen returns when this process is chosen and the consumer stands at its first unsettled message.
func (p *partition) getChosen(ctx context.Context) error {
	if p.pin == "" || time.Now().After(p.until) {
		p.pin = ""
		if err := p.choose(ctx); err != nil {
			return err
		}
	}
	return p.reset(ctx)
}

// reset lets the consumer begin again at its first unsettled message.
func (p *partition) reset(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	is := p.receiver.session
	err := is.Ask(ctx, p.stream.Name, func(ctx context.Context) error {
		_, err := is.JS.ResetConsumer(ctx, p.stream.Name, p.consumer)
		return err
	})
	if err != nil {
		return fmt.Errorf("reset: %w", err)
	}
	return nil
}

// release resets a consumer that no process has, if messages of the former one are unsettled. The server chooses a process only when it has a message
// to deliver, and would keep these back.
func (p *partition) release(ctx context.Context) error {
	info, err := p.info(ctx)
	if err != nil || info.NumAckPending == 0 || streams.IsPinned(info) {
		return err
	}
	return p.reset(ctx)
}

// choose waits until the server has chosen this process. The message that shows it is thrown away, because it may not be the first
// unsettled one.
func (p *partition) choose(ctx context.Context) error {
	messages, err := p.open()
	if err != nil {
		return err
	}
	defer messages.close()
	for p.isWanted() {
		asked := time.Now()
		if err := messages.ask(1, 0, p.every(), 0); err != nil {
			return err
		}
		if err := p.release(ctx); err != nil {
			return err
		}
		m, err := p.answer(ctx, messages)
		switch {
		case errors.Is(err, errExpired):
		case err != nil:
			return err
		case m != nil:
			p.pin, p.until = m.Header.Get(pinHeader), asked.Add(p.timeout)
			return nil
		}
	}
	return errUnwanted
}

// answer waits for the answer to one request. It returns nil, nil if the partition is not wanted any more.
func (p *partition) answer(ctx context.Context, messages *pull) (*natsclient.Msg, error) {
	silent := time.NewTimer(2 * p.every())
	defer silent.Stop()
	for p.isWanted() {
		select {
		case m := <-messages.in:
			return m, statusOf(m)
		case <-p.look:
		case <-silent.C:
			return nil, errSilent
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return nil, nil //nolint:nilnil // said above
}

func (p *partition) setSpell(s *spell) {
	r := p.receiver
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.spell != nil {
		r.drop(p.spell)
	}
	p.spell = s
}
