package store

import (
	"errors"
	"strconv"
	"strings"
)

// ErrGeneration means that a read model is not of the generation that was expected, and that nothing was done.
var ErrGeneration = errors.New("inbox: the read model is of another generation by now")

// Aside is the end of the name of a consumer that nobody runs: live messages wait under it while older ones are replayed.
const Aside = "/live"

// GenerationName is the name of a generation of a read model in the inbox: that of the read model at first, later with a number.
func GenerationName(name string, generation int64) string {
	if generation == 0 {
		return name
	}
	return name + "@" + strconv.FormatInt(generation, 10)
}

// Family is what the generations of a read model have in common: its name. Of other consumers it is their own name. Keys are locked, and parked, by the
// name of the family, so that parked messages can be handed from one generation to the next.
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

// ForgetConsumer removes what is known of the runs of a consumer: of a generation that has ended.
const ForgetConsumer = `
WITH unhandled AS (DELETE FROM {schema}.inbox_topic WHERE consumer = $1::text)
DELETE FROM {schema}.inbox_consumer WHERE consumer = $1::text`
