// SPDX-License-Identifier: MPL-2.0

package regression_test

// reviewed is the last commit before what a review of the parallel rolls found was
// mended.
const reviewed = "71a3833"

func installRows() []row {
	return []row{
		{
			area: areaInstall, seen: uncatalogued, test: engineTest("TestRollbackGoesOnWhereItWasKilled"),
			symptom:  "A node that had returned to its old system stayed cordoned, and no run would touch it.",
			wrong:    "Its entry was closed before it was back in service, and whoever finds an entry closed does nothing more.",
			scenario: "a sweep over every call of a return, killed behind the record",
		},
		{
			area: areaInstall, seen: reviewed, test: engineTest("TestNodeThatWentThroughItsBootIsNotRebootedAgain"), replay: rebootAskedTwice(),
			symptom:  "A node was rebooted a second time although it ran its new system already.",
			wrong:    "The reboot was asked for again after the guards without a look at whether the first request had come through meanwhile.",
			scenario: "seed 41, 3+2; worker-0 takes two minutes to go down, cp-2 falls silent for eight minutes in between",
		},
		{
			area: areaInstall, seen: reviewed, test: engineTest("TestBootThatCannotBeReadIsNoOtherBoot"),
			symptom:  "A run failed, or told of a fallback that had not happened, because a boot ID could not be read for a while.",
			wrong:    "A boot ID that is missing was compared like any other.",
			scenario: "seed 41, 3+2, both APIs; the boot ID of worker-0 is unreadable for three minutes from the pull, the cordon or the drain on",
		},
		{
			area: areaInstall, seen: reviewed, test: engineTest("TestEntryWithoutABootProvesNoReboot"),
			symptom:  "After a crash, a node that had not been rebooted was said to have fallen back.",
			wrong:    "An entry of the journal without a boot ID differed from the node's own, and that was taken for a reboot.",
			scenario: "seed 41, 3+2; killed behind the install, and the journal names no boots",
		},
		{
			area: areaInstall, seen: reviewed, test: engineTest("TestInstallThatNeverTookIsPlannedAnew"),
			symptom:  "A run that found an install that had never happened installed without a pull, or failed because the image was gone.",
			wrong:    "The turn that closes what an earlier run left open went on with a plan that was made before it was known what the node runs.",
			scenario: "seed 7, 3+2; killed on the way into the installer, applied again at once or eight hours later, also with a newer target",
		},
		{
			area: areaInstall, seen: reviewed, test: engineTest("TestManyInstallsThatNeverTookAreFinishedInOneApply"),
			symptom:  "The apply after a crash failed: the node did not have the image of its installer any more.",
			wrong:    "An install that had never happened was made up for at once, without the pull that a planned one begins with.",
			scenario: "seed 5, 3+6, four workers at a time; killed while the connection to all four stood still",
		},
		{
			area: areaInstall, seen: reviewed, test: engineTest("TestNodeThatReturnedAfterThePlanIsNotInstalledFromIt"),
			symptom:  "A release line was skipped, or an install without an image was asked for, on a node that had gone back to its old system by itself.",
			wrong:    "The step was carried out as planned although the node no longer ran what it was planned from.",
			scenario: "seed 79, 3+3, 1.11 to 1.14; worker-1 seems to boot the new system and turns out to have fallen back",
		},
		{
			area: areaInstall, seen: reviewed, test: engineTest("TestIntentAloneDoesNotArmTheNode"),
			symptom:  "A run that had installed nothing left its node cordoned and waited half an hour for guards that did not hold.",
			wrong:    "The intent in the journal counted as an installer that may have run.",
			scenario: "seed 51, 3+2, both APIs; the journal takes so long to be written that the guards are asked again",
		},
		{
			area: areaInstall, seen: uncatalogued, test: test{"test/harness/regression", "TestReplays"}, replay: killedBesideFallback(),
			symptom:  "After a crash a node that had fallen back stayed cordoned, and nobody took the cordon away.",
			wrong:    "The journal was told of the fallback before the node was back in service, and a closed entry is nobody's unfinished work.",
			scenario: "seed 5, 3+2; worker-0 falls back, killed before its uncordon",
		},
	}
}

func parallelRows() []row {
	return []row{
		{
			area: areaParallel, seen: reviewed, test: engineTest("TestOneNodeStaysForThePods"),
			symptom:  "With max_unavailable as high as the number of workers, pods were left with nowhere to go and drains were left out.",
			wrong:    "The budget of workers was the only bound; nobody kept a node for the pods of the others.",
			scenario: "seed 41; two workers at a time of two, or of the only two that take pods",
		},
		{
			area: areaParallel, seen: reviewed, test: engineTest("TestManyWorkersMoveSideBySide"),
			symptom:  "In large clusters workers gave up before they were cordoned.",
			wrong:    "What other turns did between two looks made each look stale, and many turns starved each other until their patience ended.",
			scenario: "seed 41, 3+70, looks that take long",
		},
		{
			area: areaParallel, seen: "a1dd59f", test: engineTest("TestWaitingForOthersIsNotTakenFromTheTimeOfANode"),
			symptom:  "The last of many workers ran out of its node_timeout while it waited for its turn to be cordoned.",
			wrong:    "The time of a node began before the queue for cordons.",
			scenario: "seed 41, 3+40, 39 at a time; each look takes 12 s",
		},
		{
			area: areaParallel, seen: "a1dd59f", test: engineTest("TestRetryAfterAFallbackIsNotDoubted"), replay: retryBesideOthers(),
			symptom:  "A node that was to be tried again after a fallback held all others back until its image was pulled.",
			wrong:    "Its closed entry in the journal was read like the open one of a node whose install nobody knows the outcome of.",
			scenario: "seed 53, 3+5, two at a time; worker-0 falls back, a person reboots it, its retry pulls for 15 minutes",
		},
		{
			area: areaParallel, seen: reviewed, test: engineTest("TestTurnThatHasNotTouchedItsNodeStandsDown"),
			symptom:  "After a failure a further node was cordoned.",
			wrong:    "A turn that was still pulling when another one failed went on as if it had begun.",
			scenario: "seed 51, 3+5, two at a time; worker-0 fails while worker-1 pulls",
		},
		{
			area: areaParallel, seen: reviewed, test: engineTest("TestNothingStartsBesideATurnThatIsSeenToFail"),
			symptom:  "A node was begun beside one that had visibly fallen back.",
			wrong:    "A failure counted only once its turn had ended, which takes as long as the way back does.",
			scenario: "seed 53, 3+5; worker-0 falls back, or its legacy installer fails, and takes long to be back",
		},
		{
			area: areaParallel, seen: reviewed, test: engineTest("TestInstallThatNobodyKnowsOfHoldsOthersBack"),
			symptom:  "Further nodes were begun although nobody could tell whether the last install had worked.",
			wrong:    "A lost reply to an install did not count as doubt.",
			scenario: "seed 57, 3+5; the reply to an install is lost",
		},
		{
			area: areaParallel, seen: reviewed, test: engineTest("TestCordonOfAnEarlierRunIsNoWayAroundTheCanaries"), replay: cordonBeforeCanary(),
			symptom:  "A node was upgraded before the canary.",
			wrong:    "An earlier run had left it cordoned, and what is unfinished goes first.",
			scenario: "seed 7, 3+3; killed at the first eviction, applied again with worker-2 as canary",
		},
		{
			area: areaParallel, seen: reviewed, test: engineTest("TestKilledRunDoesNotForgetWhoHasToSettleBeforeTheNextHop"),
			symptom:  "The next release line began before settle was over.",
			wrong:    "After a crash all nodes ran what the next hop begins with, so nobody was known to have to settle.",
			scenario: "seed 79, 3+2, 1.11 to 1.14, settle 10 minutes; killed a minute after the last uncordon of a hop",
		},
		{
			area: areaParallel, seen: "8ae5144", test: planTest("TestRollsAreSafeAtEveryMoment"),
			symptom:  "The rest of the cluster followed a canary that had broken after its upgrade.",
			wrong:    "A canary at its target was no canary any more.",
			scenario: "drawn rolls: found within the first draws (1+1, canary worker-1 not Ready)",
		},
		{
			area: areaParallel, seen: "8ae5144", test: planTest("TestOneDeadUnfinishedNodeDoesNotKeepTheOthersUnfinished"),
			symptom:  "Nodes that a dead run had left half done stayed so because one of them did not answer.",
			wrong:    "What is unfinished was ordered by name, and the run stopped at the first that could not be finished.",
			scenario: "two unfinished workers, one of them silent",
		},
	}
}
