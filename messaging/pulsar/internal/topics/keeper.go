// Package topics makes the topics and subscriptions of a namespace and checks them: through Pulsar's admin API or, without that, through
// Pulsar's client as far as possible.
//
// Read first: declare.go:Keeper.Declare, then owner.go:Keeper.own and audience.go:Audience.look.
package topics

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	pulsarclient "github.com/apache/pulsar-client-go/pulsar"

	"github.com/oncebox/oncebox/messaging"
)

// Config has the fields of pulsar.Config that are needed here, with their defaults.
type Config struct {
	URL              string // of the broker, without a password: for errors
	AdminURL         string
	AdminTimeout     time.Duration
	Tenant           string
	Namespace        string
	Partitions       int
	AudienceInterval time.Duration
	OperationTimeout time.Duration
	Token            string
	TokenFile        string
	TLSTrustCerts    string
	TLSCert          string
	TLSKey           string
	TLSAllowInsecure bool
}

// Keeper makes topics and subscriptions, and remembers which this process has declared. All methods are safe for concurrent use.
type Keeper struct {
	Admin    *Admin
	Presence Presence

	cfg Config
	to  Connection

	mu       sync.Mutex
	declared map[messaging.Subscription]bool
}

// Connection has the parts of the connection to the broker that a keeper uses.
type Connection struct {
	Client     pulsarclient.Client
	Open       context.Context //nolint:containedctx // the life of the connection
	Background *sync.WaitGroup // background work that Close waits for
	Log        *slog.Logger
	Unwatched  func(ctx context.Context, topic string) // counts a topic whose messages no subscription receives
}

// NewKeeper returns the keeper of a namespace.
func NewKeeper(c Config, a *Admin, to Connection) *Keeper {
	return &Keeper{Admin: a, Presence: Presence{Patience: Patience}, cfg: c, to: to, declared: map[messaging.Subscription]bool{}}
}

// FullName returns the name by which Pulsar knows a topic.
func (k *Keeper) FullName(topic string) string {
	return "persistent://" + k.cfg.Tenant + "/" + k.cfg.Namespace + "/" + topic
}

// Declared reports whether this process has declared the subscription, by [Keeper.Declare].
func (k *Keeper) Declared(s messaging.Subscription) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.declared[identity(s)]
}

// subscriptionsOf returns the names of the subscriptions that this program declared, ordered.
func (k *Keeper) subscriptionsOf(topic string) []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var names []string
	for s := range k.declared {
		if s.Topic == topic {
			names = append(names, s.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// remember notes that a subscription was declared.
func (k *Keeper) remember(s messaging.Subscription) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.declared[identity(s)] = true
}

// identity returns s without the fields that differ between consumers of the subscription.
func identity(s messaging.Subscription) messaging.Subscription {
	return messaging.Subscription{Topic: s.Topic, Name: s.Name, Type: s.Type, Source: s.Source, Installation: s.Installation}
}

// TypeOf returns Pulsar's type of a subscription. Failover is the default of oncebox, because it keeps the order of a
// key and scales by partition.
func TypeOf(t messaging.SubscriptionType) pulsarclient.SubscriptionType {
	switch t {
	case messaging.KeyShared:
		return pulsarclient.KeyShared
	case messaging.Shared:
		return pulsarclient.Shared
	default:
		return pulsarclient.Failover
	}
}
