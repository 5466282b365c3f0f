package receipts

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
)

// The states of a message without a receipt. They do not leave this file.
var (
	errWaiting = errors.New("receipts: not handed over")
	errFlying  = errors.New("receipts: handed over, no receipt")
)

// lane is what has an order: the messages of a topic with the same key.
type lane struct{ topic, key string }

// line holds the messages of one lane that wait for a receipt.
type line struct {
	holder  int   // the place of the message that the next one waits for, or nobody
	stuck   bool  // a message was refused
	waiting []int // places, in order
}

const nobody = -1

// answer is a receipt, or a refusal.
type answer struct {
	n   int
	err error
}

// call publishes the messages of one call. One goroutine owns all of it. Clients only write into answers, which has room for one answer of
// each message, so no client is ever blocked.
type call struct {
	window  *Window
	msgs    []event.Envelope
	indexes []int
	send    Send
	stop    context.CancelFunc // ends the waiting when the connection has a fault

	errs     []error       // the answer for each message, by its place in indexes
	answered []atomic.Bool // which messages have an answer in answers
	answers  chan answer
	next     int // the first place that was not looked at
	lines    map[lane]*line
	of       []*line // the line of each message, by its place, once it was looked up
	ready    []*line // lines whose first waiting message may go
	flying   int
	unsent   bool // messages were handed over since the last flush
	broken   bool
}

// newCall marks each message as waiting, so a call that ends early has an answer for all of them.
func newCall(w *Window, msgs []event.Envelope, indexes []int, send Send) *call {
	c := &call{
		window: w, msgs: msgs, indexes: indexes, send: send,
		errs: make([]error, len(indexes)), answered: make([]atomic.Bool, len(indexes)), answers: make(chan answer, len(indexes)),
		lines: map[lane]*line{}, of: make([]*line, len(indexes)),
	}
	for n := range c.errs {
		c.errs[n] = errWaiting
	}
	return c
}

// run hands the messages over and waits for their receipts, until all have an answer, the connection has a fault, or ctx is done.
func (c *call) run(ctx context.Context) {
	ctx, c.stop = context.WithCancel(ctx)
	defer c.stop()
	for {
		c.takeAnswers()
		if c.broken || ctx.Err() != nil {
			return
		}
		if n, ok := c.choose(); ok {
			c.handOver(ctx, n)
			continue
		}
		if c.flying == 0 {
			return
		}
		c.await(ctx)
	}
}

// choose returns the place of the message to hand over next. A message whose lane waits is put behind the others of its lane.
func (c *call) choose() (n int, ok bool) {
	if c.window.InFlight > 0 && c.flying >= c.window.InFlight {
		return 0, false
	}
	for len(c.ready) > 0 {
		l := c.ready[0]
		if l.holder == nobody && !l.stuck && len(l.waiting) > 0 {
			n, l.waiting = l.waiting[0], l.waiting[1:]
			return n, true
		}
		c.ready = c.ready[1:]
	}
	for c.next < len(c.indexes) {
		n = c.next
		c.next++
		l := c.known(n)
		switch {
		case l == nil:
			return n, true
		case l.stuck:
		case l.holder != nobody || len(l.waiting) > 0:
			l.waiting = append(l.waiting, n)
		default:
			return n, true
		}
	}
	return 0, false
}

func (c *call) laneOf(n int) lane {
	env := &c.msgs[c.indexes[n]]
	return lane{env.Topic, env.RoutingKey}
}

// known returns the line of a message, nil if nothing waits in it. A message without a key has none.
func (c *call) known(n int) *line {
	if c.of[n] == nil && len(c.lines) > 0 {
		c.of[n] = c.lines[c.laneOf(n)]
	}
	return c.of[n]
}

// line returns the line of a message, made at its first use.
func (c *call) line(n int) *line {
	l := c.known(n)
	if l == nil {
		l = &line{holder: nobody}
		if at := c.laneOf(n); at.key != "" { // without a key nothing waits
			c.lines[at], c.of[n] = l, l
		}
	}
	return l
}

func (c *call) handOver(ctx context.Context, n int) {
	if c.window.Holds != nil && c.window.Holds(c.indexes[n]) {
		c.line(n).holder = n
	}
	c.errs[n] = errFlying
	c.flying++
	c.unsent = true
	if c.send(ctx, c.indexes[n], func(err error) { c.receipt(n, err) }) != nil {
		c.broken = true
	}
}

// receipt is called by the client, in any goroutine. Only the first call for a message counts.
func (c *call) receipt(n int, err error) {
	if !c.answered[n].CompareAndSwap(false, true) {
		return
	}
	c.answers <- answer{n, err}
	if c.breaks(err) {
		c.stop()
	}
}

func (c *call) breaks(err error) bool {
	return err != nil && c.window.Breaks != nil && c.window.Breaks(err)
}

// takeAnswers takes the answers that have come, without waiting.
func (c *call) takeAnswers() {
	for {
		select {
		case a := <-c.answers:
			c.take(a)
		default:
			return
		}
	}
}

// await waits for an answer, or for the end of the call.
func (c *call) await(ctx context.Context) {
	if c.unsent && c.window.Flush != nil {
		c.unsent = false
		if c.window.Flush(ctx) != nil {
			c.broken = true
			c.takeAnswers()
			return
		}
	}
	select {
	case a := <-c.answers:
		c.take(a)
	case <-ctx.Done():
		c.takeAnswers()
	}
}

// take writes an answer into the account.
func (c *call) take(a answer) {
	c.errs[a.n] = a.err
	c.flying--
	if a.err != nil {
		c.line(a.n).stuck = true
		c.broken = c.broken || c.breaks(a.err)
		return
	}
	if l := c.known(a.n); l != nil && l.holder == a.n {
		l.holder = nobody
		c.ready = append(c.ready, l)
	}
}

// land returns the errors by index. Of each lane, the messages without an error are a prefix.
func (c *call) land() map[int]error {
	failed := map[int]error{}
	behind := map[lane]bool{}
	for n, i := range c.indexes {
		at, err := c.laneOf(n), c.errs[n]
		switch {
		case errors.Is(err, errFlying):
			err = fmt.Errorf("%w: topic %s", messaging.ErrUnknown, at.topic)
		case errors.Is(err, errWaiting) && behind[at]:
			err = messaging.ErrBehind
		case errors.Is(err, errWaiting):
			err = fmt.Errorf("%w: the message was not sent to topic %s", messaging.ErrUnknown, at.topic)
		case err == nil && behind[at]:
			// It was stored, and an earlier message of its key was not. It is sent again behind that one, as a duplicate.
			err = fmt.Errorf("%w: it was stored before an earlier message of its key and is sent again after that message", messaging.ErrUnknown)
		}
		if err != nil {
			failed[i] = err
			behind[at] = at.key != ""
		}
	}
	return failed
}
