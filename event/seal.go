package event

import (
	"context"
	"errors"
	"fmt"
)

// ContentTypeSealed is the media type of a payload that a [Sealer] has sealed.
const ContentTypeSealed = "application/vnd.oncebox.sealed"

// Keys of [Metadata] of a sealed event. The first one says that it is sealed, also where the content type is not shown.
const (
	SealedKey         = "sealed_key"          // the id of the key that opens the payload
	SealedContentType = "sealed_content_type" // the media type of the payload when it is open
)

// ErrErased means that the key of an event was erased for good: nobody can ever read its payload again. Do not return it because a key
// store does not answer or does not know the key yet.
var ErrErased = errors.New("event: the key of the payload was erased")

// Sealer encrypts payloads. A registry with a sealer ([WithSealer]) seals every payload after the codec, before it is stored, and opens it
// before the upcasters, when it is read.
//
// Both methods are called from many goroutines, and while a transaction is open. So a sealer remembers keys, and what it
// has to ask a database for goes through a pool of its own: from the pool of the units, all of them could wait for each
// other's connections.
type Sealer interface {
	// Seal returns the payload of env as it is to be stored, and the id of the key that opens it. env is complete but for
	// its Sequence, and must not be changed. An empty id leaves the event as it is. An error fails the unit of work.
	Seal(ctx context.Context, env *Envelope) (sealed []byte, keyID string, err error)

	// Open undoes Seal. env is what Seal was given but for the payload, which is sealed, and for what may change on the
	// way: Topic, Delivery, and metadata that is added. Bind ID, TenantID and Type to the payload, so that it opens in no
	// other event.
	//
	// An error that wraps [ErrErased] means that the key is gone for good, a [*DecodeError] that this payload will never open with this
	// key. Every other error counts as an outage: the event is tried again until it passes.
	Open(ctx context.Context, env *Envelope, keyID string) (payload []byte, err error)
}

// WithSealer seals all payloads that are stored with this registry: encoded [Event]s, and payloads that were added as bytes. Events that
// were stored before stay readable.
//
// Only payloads are sealed, in every table and on the wire. Ids, types, tenants, routing keys and metadata are not, because the delivery of
// an event needs them.
func WithSealer(s Sealer) RegistryOption { return func(r *Registry) { r.sealer = s } }

// Seal seals the payload of env in place, and says so in its content type and metadata. Whatever makes outbox rows calls it.
// It leaves an event as it is that is sealed already. Without a sealer it only takes away the entries of a sealed event that
// came along with somebody's metadata. The error is the sealer's, or [ErrInvalid] if the
// id of the key has no room in the metadata.
func (r *Registry) Seal(ctx context.Context, env *Envelope) error {
	marked := env.Metadata[SealedKey] != ""
	if marked && env.ContentType == ContentTypeSealed || !marked && r.sealer == nil {
		return nil
	}
	if r.sealer == nil {
		env.Metadata = unmarked(env.Metadata)
		return nil
	}
	payload, keyID, err := r.sealer.Seal(ctx, env)
	if err != nil {
		return fmt.Errorf("event: seal %s %s: %w", env.Type, env.ID, err)
	}
	env.Metadata = unmarked(env.Metadata)
	if keyID == "" {
		return nil
	}
	env.Metadata[SealedKey], env.Metadata[SealedContentType] = keyID, env.ContentType
	env.ContentType, env.Payload = ContentTypeSealed, payload
	return env.Metadata.validate()
}

// Open returns env as it was before [Registry.Seal], and env itself if it is not sealed. [Registry.Decode] takes what it
// returns. The error wraps [ErrErased] if nobody can open it any more, is a [*DecodeError] if this build cannot, and is the
// sealer's otherwise. A messaging.Router does all that for its handlers.
func (r *Registry) Open(ctx context.Context, env *Envelope) (*Envelope, error) {
	keyID := env.Metadata[SealedKey]
	if keyID == "" {
		return env, nil
	}
	if r.sealer == nil {
		return nil, &DecodeError{env.Type, max(env.SchemaVersion, 1), fmt.Errorf("sealed with key %q: make the registry with event.WithSealer", keyID)}
	}
	opened := *env
	opened.ContentType, opened.Metadata = env.Metadata[SealedContentType], unmarked(env.Metadata)
	payload, err := r.sealer.Open(ctx, &opened, keyID)
	if err != nil {
		return nil, fmt.Errorf("event: open %s %s: %w", env.Type, env.ID, err)
	}
	opened.Payload = payload
	return &opened, nil
}

// unmarked returns a copy without the entries that say that an event is sealed. They may have come along with the metadata
// of another event.
func unmarked(m Metadata) Metadata {
	m = m.Clone()
	delete(m, SealedKey)
	delete(m, SealedContentType)
	return m
}
