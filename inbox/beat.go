package inbox

import (
	"context"
	"slices"
	"time"
)

// beat notes, once a minute, that this process runs its consumers and handles their topics, and looks for topics that no process handles.
func (r *runner) beat(ctx context.Context, consumers []string) error {
	now := time.Now()
	consumers = slices.DeleteFunc(slices.Clone(consumers), r.box.isUnowned)
	if len(consumers) == 0 || now.Sub(r.active) <= time.Minute && len(consumers) == r.noted {
		return nil
	}
	of, topics := r.box.handled()
	absent, err := r.box.state.Beat(ctx, consumers, of, topics)
	if err != nil {
		return err
	}
	r.active, r.noted = now, len(consumers)
	for _, a := range absent {
		r.box.store.Log.WarnContext(ctx, "oncebox: messages are parked whose topic no process handles: start one that has this consumer on it",
			"consumer", a.Consumer, "topic", a.Topic, "since", a.Since)
	}
	return nil
}

// handled returns the consumers and topics whose parked messages can be handled here. Topic "" is of all topics.
func (i *Inbox) handled() (consumers, topics []string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	keys := make([]handlerKey, 0, len(i.handlers))
	for key := range i.handlers {
		if !i.unowned(key.consumer) {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, handlerKey.compare) // or two processes could wait for each other
	for _, key := range keys {
		consumers, topics = append(consumers, key.consumer), append(topics, key.topic)
	}
	return consumers, topics
}
