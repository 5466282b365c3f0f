package store

import (
	"errors"
	"strconv"
	"strings"
)

// ErrGeneration means that the read model has another generation than expected. Nothing was done.
var ErrGeneration = errors.New("inbox: the read model is of another generation by now")

// Aside is a suffix that makes the name of a consumer that nobody runs. Live messages are parked under this name while older ones are
// replayed.
const Aside = "/live"

// GenerationName returns the name of a generation in the inbox: the name of the read model, from the second generation on with "@" and a
// number.
func GenerationName(name string, generation int64) string {
	if generation == 0 {
		return name
	}
	return name + "@" + strconv.FormatInt(generation, 10)
}

// Family returns the name of the read model that a generation belongs to, and for other consumers their own name. Locks of keys are made
// with this name, so that parked messages can move from one generation to the next.
func Family(consumer string) string {
	end := strings.LastIndexByte(consumer, '@')
	if end < 0 {
		return consumer
	}
	if _, err := strconv.ParseUint(strings.TrimSuffix(consumer[end+1:], Aside), 10, 63); err != nil {
		return consumer
	}
	return consumer[:end]
}

// FamilyOfConsumer is [Family] in SQL, for the column consumer of a table c.
const FamilyOfConsumer = `regexp_replace(c.consumer, '@[0-9]+(` + Aside + `)?$', '')`

// ForgetConsumer removes the record that a generation, which has ended, was run. The first generation has the name of its read model,
// which still belongs to its service and is still subscribed.
const ForgetConsumer = `
WITH unhandled AS (DELETE FROM {schema}.inbox_topic WHERE consumer = $1::text AND NOT subscribed),
	owned AS (
	UPDATE {schema}.inbox_consumer SET beat_at = NULL, active_at = NULL, back_at = NULL, stopped_at = NULL
	WHERE consumer = $1::text AND source IS NOT NULL)
DELETE FROM {schema}.inbox_consumer WHERE consumer = $1::text AND source IS NULL`
