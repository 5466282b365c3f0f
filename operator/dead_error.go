package operator

import (
	"errors"
	"time"
)

var (
	// ErrNotDead means that there is no such dead letter: there never was one, or another operator was faster.
	ErrNotDead = errors.New("there is no such dead letter")
	// ErrSeveralDead means that several dead letters have the id, because the producer gave it to several events ([event.WithID]). Select
	// one with a [DeadFilter] of the ID and, for instance, the tenant.
	ErrSeveralDead = errors.New("several dead letters have this id: select them with a DeadFilter")
)

// DeadError is the error of one dead letter.
type DeadError struct {
	// DiedAt is when it was given up, by the clock of the database.
	DiedAt time.Time
	// Consumer is the consumer that gave the message up, "" for an event of the outbox. TenantID, Topic and
	// Type belong to the event or message.
	Consumer, TenantID, Topic, Type string
	// Error is the beginning of the letter's error, at most 300 characters, and Fingerprint that of the whole error.
	Error, Fingerprint string
}
