package streams

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/oncebox/oncebox/messaging/diagnosis"
	"github.com/oncebox/oncebox/messaging/wire"
)

// Topics returns the topics whose streams have our prefix and were made by this package.
func (k *Keeper) Topics(ctx context.Context) (topics []string, err error) {
	err = k.session.Ask(ctx, "", func(ctx context.Context) error {
		list := k.session.JS.ListStreams(ctx)
		for info := range list.Info() {
			escaped, ours := strings.CutPrefix(info.Config.Name, k.Stream(""))
			if _, made := info.Config.Metadata[partitionsKey]; ours && made {
				topics = append(topics, wire.Unescape(escaped))
			}
		}
		return list.Err()
	})
	slices.Sort(topics)
	return topics, err
}

// consumers returns the consumers of a stream that belong to subscriptions.
func (k *Keeper) consumers(ctx context.Context, st *Stream) (all []*jetstream.ConsumerInfo, err error) {
	err = k.session.Ask(ctx, st.Name, func(ctx context.Context) error {
		list := st.Handle.ListConsumers(ctx)
		for c := range list.Info() {
			if _, ours := c.Config.Metadata[subscriptionKey]; ours {
				all = append(all, c)
			}
		}
		return list.Err()
	})
	return all, err
}

// examination collects the findings about one topic.
type examination struct {
	topic, stream string
	found         []diagnosis.Finding
}

func (x *examination) findf(severity diagnosis.Severity, mend, format string, args ...any) {
	x.found = append(x.found, diagnosis.Find(diagnosis.Broker, severity, mend, "topic "+x.topic+": "+format, args...))
}

// Examine returns what is wrong with the settings of a topic, and its state. The state is nil if the topic does not exist. A message without an answer
// is published again after publishTimeout.
func (k *Keeper) Examine(ctx context.Context, topic string, publishTimeout time.Duration) ([]diagnosis.Finding, *diagnosis.Topic, error) {
	st, err := k.Existing(ctx, topic)
	x := &examination{topic: topic, stream: k.Stream(topic)}
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		x.findf(diagnosis.Problem, "correct the name, or start the service that publishes to it, which makes the stream",
			"it does not exist: there is no stream %s", x.stream)
		return x.found, nil, nil
	case errors.Is(err, ErrSettings):
		x.findf(diagnosis.Problem, "see there", "%v", err)
		return x.found, nil, nil
	case err != nil:
		return nil, nil, err
	}
	info := st.Handle.CachedInfo()
	if _, err := k.checked(topic, st.Handle); err != nil {
		x.findf(diagnosis.Problem, "see there", "%v", err)
	}
	x.copies(&info.Config, publishTimeout)
	x.storage(info)
	state := &diagnosis.Topic{Name: topic, Retained: -1, Unused: st.IsUnused()}
	if info.Config.MaxAge > 0 {
		state.Retained = info.Config.MaxAge
	}
	all := map[string]*diagnosis.Subscription{}
	consumers, err := k.consumers(ctx, st)
	for _, c := range consumers {
		x.consumer(c)
		count(all, c.Config.Metadata[subscriptionKey], c, st)
		if err := k.aging(ctx, x, st, c); err != nil {
			return x.found, nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		state.Subscriptions = append(state.Subscriptions, *all[name])
	}
	return x.found, state, err
}

// copies finds a window for duplicates that lets copies in.
func (x *examination) copies(c *jetstream.StreamConfig, publishTimeout time.Duration) {
	if c.Duplicates <= publishTimeout {
		x.findf(diagnosis.Warning, "nats stream edit "+x.stream+" --dupe-window 5m",
			"its stream recognizes copies for %s, and a message without a confirmation is "+
				"published again after %s (ONCEBOX_NATS_PUBLISH_TIMEOUT): it is stored twice", c.Duplicates, publishTimeout)
	}
}

// storage finds streams that do not survive the end of a server.
func (x *examination) storage(info *jetstream.StreamInfo) {
	if info.Config.Storage == jetstream.MemoryStorage {
		x.findf(diagnosis.Problem, "make the stream anew with --storage file",
			"its stream is in the memory of the server: confirmed messages are lost when it ends")
	}
	if info.Cluster != nil && info.Cluster.Name != "" && info.Config.Replicas < 3 {
		x.findf(diagnosis.Warning, "nats stream edit "+x.stream+" --replicas 3",
			"its stream has %d replica(s) in a cluster: while the server that has it is away, "+
				"nothing can be published or received, and a lost disk loses messages", info.Config.Replicas)
	}
}

// consumer finds settings with which a subscription loses messages or stands still.
func (x *examination) consumer(c *jetstream.ConsumerInfo) {
	edit := "nats consumer edit " + x.stream + " " + c.Name + " "
	if c.Config.MaxDeliver > 0 {
		x.findf(diagnosis.Problem, edit+"--max-deliver=-1",
			"the server delivers a message to %s at most %d times, and drops it then", c.Name, c.Config.MaxDeliver)
	}
	if c.Config.InactiveThreshold > 0 {
		x.findf(diagnosis.Problem, edit+"--inactive-threshold=0s",
			"the server deletes %s, with its position, when no process has fetched from it for %s", c.Name,
			c.Config.InactiveThreshold)
	}
	if c.Paused {
		x.findf(diagnosis.Warning, "nats consumer resume "+x.stream+" "+c.Name, "%s is paused for %s", c.Name, c.PauseRemaining.Round(time.Second))
	}
	if n := c.Config.MaxAckPending; n > 0 && c.NumAckPending >= n {
		x.findf(diagnosis.Problem, edit+"--max-pending=-1", "%s gets no further message, because %d are not settled, and the server allows no more", c.Name, n)
	}
}

// count adds a consumer to its subscription.
func count(all map[string]*diagnosis.Subscription, name string, c *jetstream.ConsumerInfo, st *Stream) {
	s := all[name]
	if s == nil {
		s = &diagnosis.Subscription{
			Name: name, Unordered: c.Config.PriorityPolicy == jetstream.PriorityPolicyNone,
			Owner:  diagnosis.Publisher{Source: c.Config.Metadata[sourceKey], Installation: c.Config.Metadata[installationKey]},
			Remove: fmt.Sprintf("nats consumer rm %s %s, and so for each of its partitions", st.Name, c.Name),
		}
		all[name] = s
	}
	waiting := Waiting(c)
	s.Waiting += waiting
	switch {
	case IsRead(c):
		s.Consumers++
	case waiting > 0:
		s.Unattended++
	}
}

// aging finds messages that wait and are about to be dropped, because more than half of the time that the stream keeps them is over.
func (k *Keeper) aging(ctx context.Context, x *examination, st *Stream, c *jetstream.ConsumerInfo) error {
	age := st.Handle.CachedInfo().Config.MaxAge
	if age <= 0 || Waiting(c) == 0 || c.Config.FilterSubject == "" {
		return nil
	}
	var oldest *jetstream.RawStreamMsg
	err := k.session.Ask(ctx, st.Name, func(ctx context.Context) (err error) {
		oldest, err = st.Handle.GetMsg(ctx, c.AckFloor.Stream+1, jetstream.WithGetMsgSubject(c.Config.FilterSubject))
		return err
	})
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if waited := time.Since(oldest.Time); waited > age/2 {
		x.findf(diagnosis.Problem, "start a process that consumes, or: nats stream edit "+st.Name+" --max-age "+(2*age).String(),
			"a message has waited for %s for %s, "+
				"and the stream keeps messages for %s: it will be lost", waited.Round(time.Second), c.Name, age)
	}
	return nil
}
