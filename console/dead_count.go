package console

import "context"

// deadCounts are how many dead letters each box has, and whether there may be more.
type deadCounts struct {
	hasOutbox, hasInbox bool
	outbox, inbox       int64
	more                bool // at consumers
}

// countDead counts both boxes, with a bound: exact up to 10,000.
func (c *Console) countDead(ctx context.Context) (n deadCounts, err error) {
	if n.hasOutbox = c.cfg.Outbox != nil; n.hasOutbox {
		st, err := c.cfg.Outbox.Stats(ctx)
		if err != nil {
			return n, err
		}
		n.outbox = st.Dead
	}
	if n.hasInbox = c.cfg.Inbox != nil; n.hasInbox {
		stats, err := c.cfg.Inbox.Stats(ctx)
		if err != nil {
			return n, err
		}
		for _, st := range stats {
			n.inbox += int64(st.DeadLetters)
			n.more = n.more || st.DeadLetters > 0 && st.DeadLetters >= st.Counted
		}
	}
	return n, nil
}

// box is the one to show first: the first that has some.
func (n deadCounts) box() string {
	if n.hasOutbox && (n.outbox > 0 || n.inbox == 0) {
		return boxOutbox
	}
	return boxInbox
}

func (n deadCounts) elsewhere(box string) int64 {
	if box == boxOutbox {
		return n.inbox
	}
	return n.outbox
}

// show puts the numbers on the tabs.
func (n deadCounts) show(tabs []tab) {
	for i := range tabs {
		switch {
		case tabs[i].Box == boxOutbox:
			tabs[i].Count = group(n.outbox)
		case n.more:
			tabs[i].Count = group(n.inbox) + "+"
		default:
			tabs[i].Count = group(n.inbox)
		}
	}
}
