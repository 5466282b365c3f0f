// Package quietlog keeps what fails again and again to a line a minute.
//
// Records of WARN and above are put into groups. The first record of a group is written at once. Of the others one is written each interval, the latest,
// with how many there were and since when. When none has come for a while, a line at INFO says so. So an outage is one line when it begins, one a
// minute while it lasts, and one when it is over, however many messages, requests and connections it hits.
//
// A group is what has one cause, at one place:
//
//   - What is away for the whole process, the database or the broker, is one group for each level. See [Away].
//   - A consumer that fails for one reason is one group, whichever of its lines says so. The reason is the text of the error, as package cause has it.
//     An ERROR also has its message: each asks for something else.
//   - Else it is the message, the reason, and what names a place: the topic, the route, the task. A line without an error has all of them.
//
// Ids, keys, tenants, numbers and times never tell groups apart. They are many, and their groups would be the flood again.
//
// [Every] is for lines that somebody looks for one by one. There is no goroutine, and nothing to close. [Flush] writes what was counted and is not
// written yet.
package quietlog
