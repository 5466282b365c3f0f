package streams

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/nats/internal/session"
)

// Config has the settings of new streams and consumers, see nats.Config.
type Config struct {
	// OnlyChecks makes nothing, and reports as an error what does not exist.
	OnlyChecks                               bool
	Partitions, Replicas                     int
	MaxAge, DuplicateWindow, TakeoverTimeout time.Duration
	MaxBytes                                 int64
}

// Keeper knows the streams of topics. It is safe for concurrent use. Make it with [NewKeeper].
type Keeper struct {
	Config
	Names

	session *session.Session
	mu      sync.Mutex
	streams map[string]*Stream // by topic
}

// NewKeeper returns a keeper that knows no stream yet.
func NewKeeper(c Config, names Names, s *session.Session) *Keeper {
	return &Keeper{Config: c, Names: names, session: s, streams: map[string]*Stream{}}
}

var (
	// ErrSettings means that a stream or consumer exists with settings that break the guarantees.
	ErrSettings = errors.New("it exists with other settings")
	// ErrMissing means that a stream or consumer does not exist, and Config.Declare is "check".
	ErrMissing = errors.New("it does not exist, and Config.Declare (ONCEBOX_NATS_DECLARE) is check")
)

// partitionsKey is the metadata of a stream that says how many partitions it has. All programs use it: if two of them reckoned with different
// numbers, messages would be published where nobody looks.
const partitionsKey = "oncebox-partitions"

// Stream is the stream of a topic.
type Stream struct {
	// Topic is the logical topic, Name the name of the stream.
	Topic, Name string
	// Partitions is the number of its partitions.
	Partitions int
	// Handle is the client's.
	Handle jetstream.Stream

	subjects []string // of the partitions
}

// Subject returns the subject of a message's partition.
func (s *Stream) Subject(env *event.Envelope) string {
	return s.subjects[PartitionOf(env, s.Partitions)]
}

// Open returns the stream of a topic, and makes it at its first use.
func (k *Keeper) Open(ctx context.Context, topic string) (*Stream, error) {
	if s := k.known(topic); s != nil {
		return s, nil
	}
	if err := k.ValidateTopic(topic); err != nil {
		return nil, messaging.Permanent(fmt.Errorf("nats: topic %q: %w", topic, err))
	}
	name := k.Stream(topic)
	var handle jetstream.Stream
	err := k.session.Ask(ctx, name, func(ctx context.Context) (err error) {
		handle, err = k.openStream(ctx, topic, name)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", name, err)
	}
	s, err := k.checked(topic, handle)
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", name, err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.streams[topic] = s
	return s, nil
}

func (k *Keeper) known(topic string) *Stream {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.streams[topic]
}

// Forget makes the next use of a topic look for its stream again.
func (k *Keeper) Forget(topic string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.streams, topic)
}

// openStream asks for a stream, and makes it if it does not exist.
func (k *Keeper) openStream(ctx context.Context, topic, name string) (jetstream.Stream, error) {
	handle, err := k.session.JS.Stream(ctx, name)
	if !errors.Is(err, jetstream.ErrStreamNotFound) {
		return handle, err
	}
	if k.OnlyChecks {
		return nil, fmt.Errorf("%w: make it: nats stream add %s --subjects %q --storage file --retention limits --discard new --dupe-window %s "+
			"--metadata %s=%d", ErrMissing, name, strings.Join(k.Subjects(topic, k.Partitions), ","), k.DuplicateWindow, partitionsKey, k.Partitions)
	}
	handle, err = k.session.JS.CreateStream(ctx, k.newStream(topic, name))
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // another process made it at the same moment, with other settings
		return k.session.JS.Stream(ctx, name)
	}
	if api, ok := errors.AsType[*jetstream.APIError](err); ok && api.ErrorCode == subjectsOverlap {
		return nil, fmt.Errorf("stream %s: another stream has its subjects %s: set Config.Prefix (ONCEBOX_NATS_PREFIX) to a prefix of your own, or remove "+
			"them from the other stream: %w", name, strings.Join(k.Subjects(topic, k.Partitions), ", "), err)
	}
	return handle, err
}

// subjectsOverlap is the server's JSStreamSubjectOverlapErr, which the client has no name for.
const subjectsOverlap jetstream.ErrorCode = 10065

// newStream returns the settings of a stream. A stream that is full refuses messages, which wait in the outbox then; with the server's default it would
// throw away messages that nobody has received.
func (k *Keeper) newStream(topic, name string) jetstream.StreamConfig {
	c := &k.Config
	replicas := c.Replicas
	if replicas == 0 {
		replicas = 1
		if k.session.Conn.ConnectedClusterName() != "" {
			replicas = 3
		}
	}
	s := jetstream.StreamConfig{
		Name: name, Subjects: k.Subjects(topic, c.Partitions), Description: "topic " + topic + " of oncebox",
		Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardNew, Storage: jetstream.FileStorage, Replicas: replicas,
		MaxBytes: -1, Duplicates: c.DuplicateWindow, AllowDirect: true, Metadata: map[string]string{partitionsKey: strconv.Itoa(c.Partitions)},
	}
	if c.MaxAge > 0 {
		s.MaxAge = c.MaxAge
	}
	if c.MaxBytes > 0 {
		s.MaxBytes = c.MaxBytes
	}
	return s
}

// checked returns the stream if it keeps the guarantees. Other settings are used as they are.
func (k *Keeper) checked(topic string, handle jetstream.Stream) (*Stream, error) {
	c := handle.CachedInfo().Config
	s, err := k.described(topic, handle)
	errs := []error{err}
	wrong := func(setting string, is, must any, mend string) {
		errs = append(errs, fmt.Errorf("%w: %s is %v and must be %v: %s", ErrSettings, setting, is, must, mend))
	}
	edit := "nats stream edit " + c.Name + " "
	if c.Retention != jetstream.LimitsPolicy {
		wrong("retention", c.Retention, jetstream.LimitsPolicy, "with another one, messages are gone that a later subscription has to get: make it anew, or "+
			edit+"--retention limits")
	}
	if c.NoAck {
		wrong("no_ack", true, false, "without acknowledgements nobody knows what is stored: "+edit+"--ack")
	}
	if c.MaxMsgsPerSubject > 0 {
		wrong("max_msgs_per_subject", c.MaxMsgsPerSubject, -1, "a partition is a subject, so messages are dropped that nobody has received: "+
			edit+"--max-msgs-per-subject=-1")
	}
	if c.Discard == jetstream.DiscardOld && (c.MaxBytes > 0 || c.MaxMsgs > 0) {
		wrong("discard", c.Discard, jetstream.DiscardNew, "it has a limit of size, and throws away the oldest messages when that is reached, also if nobody "+
			"has received them; with discard new it refuses messages, and they wait in the outbox: "+edit+"--discard new")
	}
	if t := c.SubjectTransform; t != nil && s.isMatchedBy(t.Source) {
		wrong("subject_transform", t.Source+" to "+t.Destination, "about other subjects", "no consumer finds messages that have changed their subject: take "+
			"it out of the settings: "+edit+"--config FILE")
	}
	if c.Sealed || c.Mirror != nil {
		wrong("sealed or mirror", true, false, "nothing can be published to it: choose another Config.Prefix (ONCEBOX_NATS_PREFIX)")
	}
	return s, errors.Join(errs...)
}

// described returns the stream, and an error if its partitions are not known.
func (k *Keeper) described(topic string, handle jetstream.Stream) (*Stream, error) {
	c := handle.CachedInfo().Config
	partitions, err := k.partitionsOf(topic, &c)
	return &Stream{Topic: topic, Name: c.Name, Partitions: partitions, Handle: handle, subjects: k.Subjects(topic, partitions)}, err
}

// isMatchedBy reports whether a filter matches subjects of the partitions.
func (s *Stream) isMatchedBy(filter string) bool {
	return slices.ContainsFunc(s.subjects, func(subject string) bool { return matches(filter, subject) })
}

// partitionsOf returns the number of partitions of a stream. A stream that was made by hand, without our metadata, has as many as it lists subjects.
func (k *Keeper) partitionsOf(topic string, c *jetstream.StreamConfig) (int, error) {
	if text, ok := c.Metadata[partitionsKey]; ok {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > 1024 {
			return 0, fmt.Errorf("%w: its metadata %s is %q and must be a number from 1 to 1024: nats stream edit %s --metadata %s=N, with the number of "+
				"its subjects", ErrSettings, partitionsKey, text, c.Name, partitionsKey)
		}
		for _, subject := range k.Subjects(topic, n) {
			if !slices.ContainsFunc(c.Subjects, func(filter string) bool { return matches(filter, subject) }) {
				return 0, fmt.Errorf("%w: its metadata %s is %d, and it does not take the subject %s: nats stream edit %s --subjects %q", ErrSettings,
					partitionsKey, n, subject, c.Name, strings.Join(k.Subjects(topic, n), ","))
			}
		}
		return n, nil
	}
	n := 0
	for slices.Contains(c.Subjects, k.Subject(topic, n)) {
		n++
	}
	if n == 0 {
		return 0, fmt.Errorf("%w: its subjects are %q, and it has no metadata %s: nats stream edit %s --subjects %q --metadata %s=%d", ErrSettings,
			c.Subjects, partitionsKey, c.Name, strings.Join(k.Subjects(topic, k.Partitions), ","), partitionsKey, k.Partitions)
	}
	return n, nil
}

// Existing returns the stream of a topic as it is now, and never makes it. The error is [jetstream.ErrStreamNotFound] if it does not exist.
func (k *Keeper) Existing(ctx context.Context, topic string) (*Stream, error) {
	handle, err := k.session.Stream(ctx, k.Stream(topic))
	if err != nil {
		return nil, err
	}
	return k.described(topic, handle)
}

// IsUnused reports whether no message was ever stored. The server keeps the last number of a stream whose messages are gone.
func (s *Stream) IsUnused() bool { return s.Handle.CachedInfo().State.LastSeq == 0 }
