package pulsar

import (
	"context"
	"log/slog"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/oncebox/oncebox/internal/quietlog"
)

// clientSays is the beginning of each log line of the client.
const clientSays = "Pulsar's client: "

// discreet passes the log of Pulsar's client on, and adds the component of oncebox that the line is about. The client's info level, some
// fifty lines for each start, becomes debug. Content of messages is left out: at debug level the client prints whole messages, and with
// some errors all their properties. While [Broker] waits for the broker, each failed attempt is debug too, because Broker itself logs that
// it waits, and why.
//
// Later, while the broker is away, each producer and consumer of each partition tries to reconnect and logs that in about ten different
// forms. All of them count as one repeated failure in the log.
//
// A warning that is part of normal work is debug, too: see filtered.
type discreet struct {
	slog.Handler

	waiting   func() bool
	refused   func(reason string) // called when the broker refuses a connection, which the client reports only in its log
	users     func() string       // the components, which share the connections
	component string              // "" of a connection
	cut       bool                // an attribute says that there is no connection
}

// refusal begins a line in which the client's log says that the broker has refused a connection.
const refusal = "Failed to establish connection with broker: "

// unconnected matches the lines of the client about a missing connection.
var unconnected = regexp.MustCompile(`(?i)connect|handshake|\beof\b|timed? ?out|refused|reset by peer|broken pipe|no such host|unreachable|service ?not ?ready`)

// filtered matches the warning of the client (0.21.0) about a batch that the broker has sent again although all of its messages were acknowledged, or
// come before the place at which the client goes on reading. The client gives their permits back, and loses nothing.
var filtered = regexp.MustCompile(`^receive \d+ messages , all filtered$`)

// level returns the level at which a line of the client is logged.
func (d discreet) level(client slog.Level, text string) slog.Level {
	if client < slog.LevelWarn || d.waiting() || filtered.MatchString(text) {
		return slog.LevelDebug
	}
	return client
}

// Enabled accepts all warnings, whatever the level of the log: Handle looks for refused connections in them.
func (d discreet) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn || level >= slog.LevelInfo && d.Handler.Enabled(ctx, d.level(level, ""))
}

func (d discreet) Handle(ctx context.Context, r slog.Record) error {
	// The client reports a refused connection in its log only, so the text is the only way to learn of it.
	if reason, ok := strings.CutPrefix(r.Message, refusal); ok {
		d.refused(strings.Trim(reason, "'"))
	}
	level := d.level(r.Level, r.Message)
	if !d.Handler.Enabled(ctx, level) {
		return nil
	}
	clean := slog.NewRecord(r.Time, level, clientSays+r.Message, r.PC)
	isCut := d.cut || unconnected.MatchString(r.Message)
	r.Attrs(func(a slog.Attr) bool {
		if !private(a) {
			clean.AddAttrs(a)
			isCut = isCut || saysCut(a)
		}
		return true
	})
	if level >= slog.LevelWarn {
		component := d.component
		if component == "" {
			component = d.users()
		}
		clean.AddAttrs(slog.String("component", component))
		if isCut {
			ctx = quietlog.Away(ctx, quietlog.Broker+" for its client")
		}
	}
	return d.Handler.Handle(ctx, clean)
}

func (d discreet) WithAttrs(attrs []slog.Attr) slog.Handler {
	clean := slices.DeleteFunc(slices.Clone(attrs), private)
	with := d
	with.Handler, with.cut = d.Handler.WithAttrs(clean), d.cut || slices.ContainsFunc(clean, saysCut)
	if of := componentOf(clean); of != "" {
		with.component = of
	}
	return with
}

// WithGroup opens the group in the inner handler and keeps the other fields, such as the component: the attributes that name it were set before.
func (d discreet) WithGroup(name string) slog.Handler {
	d.Handler = d.Handler.WithGroup(name)
	return d
}

// private matches the properties of messages, which may hold personal data.
func private(a slog.Attr) bool { return a.Key == "properties" }

// saysCut reports whether an error in an attribute is about a missing connection.
func saysCut(a slog.Attr) bool { return a.Key == "error" && unconnected.MatchString(a.Value.String()) }

// componentOf returns the component that a line is about, as far as its attributes show it.
func componentOf(attrs []slog.Attr) string {
	topic, subscription := "", ""
	for _, a := range attrs {
		switch a.Key {
		case "topic":
			topic = shortName(a.Value.String())
		case "subscription":
			subscription = a.Value.String()
		}
	}
	switch {
	case subscription != "":
		return "consumer " + subscription + " of " + topic
	case topic != "":
		return "publisher of " + topic
	default:
		return ""
	}
}

// ofPartition matches the end of a partition's name.
var ofPartition = regexp.MustCompile(`-partition-\d+$`)

// shortName returns the program's name of a topic, from the full name of the topic or a partition.
func shortName(full string) string { return ofPartition.ReplaceAllString(path.Base(full), "") }

// users returns the connected components. They share connections, so a line about a connection concerns all of them.
func (b *Broker) users() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []string
	for name := range b.topics {
		all = append(all, "publisher of "+name)
	}
	for r := range b.receivers {
		all = append(all, "consumer "+r.subscription.Name+" of "+r.subscription.Topic)
	}
	if len(all) == 0 {
		return "none yet"
	}
	slices.Sort(all)
	all = slices.Compact(all)
	const most = 10
	if len(all) > most {
		all = append(all[:most], "and others")
	}
	return strings.Join(all, ", ")
}

// nowhere is a Prometheus registerer that registers nothing. It keeps the client's own metrics out of the program's registry.
type nowhere struct{}

func (nowhere) Register(prometheus.Collector) error  { return nil }
func (nowhere) MustRegister(...prometheus.Collector) {}
func (nowhere) Unregister(prometheus.Collector) bool { return true }
