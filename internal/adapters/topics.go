package adapters

import (
	"maps"
	"sync"

	"github.com/oncebox/oncebox/event"
)

// ByTopic calls publish for each topic of a call, with the indexes of its messages, and returns the errors of all by index. Topics are published side
// by side, so that a topic that hangs does not delay the others.
func ByTopic(msgs []event.Envelope, publish func(topic string, indexes []int) map[int]error) map[int]error {
	byTopic := map[string][]int{}
	for i := range msgs {
		byTopic[msgs[i].Topic] = append(byTopic[msgs[i].Topic], i)
	}
	if len(byTopic) == 1 {
		return publish(msgs[0].Topic, byTopic[msgs[0].Topic])
	}
	var (
		mu     sync.Mutex
		failed = map[int]error{}
		under  sync.WaitGroup
	)
	for topic, indexes := range byTopic {
		under.Go(func() {
			errs := publish(topic, indexes)
			mu.Lock()
			defer mu.Unlock()
			maps.Copy(failed, errs)
		})
	}
	under.Wait()
	return failed
}

// All returns one error for all messages of a topic.
func All(indexes []int, err error) map[int]error {
	failed := make(map[int]error, len(indexes))
	for _, i := range indexes {
		failed[i] = err
	}
	return failed
}
