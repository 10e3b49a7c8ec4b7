"""What a trajectory and its votes become for the train step, on an example small enough to write out."""

import numpy as np
import pytest

from rlanything_jax.dialogue import Transcript, WordDialogue
from rlanything_jax.models.tokenizer import build_tokenizer
from rlanything_jax.reward.judge import Vote
from rlanything_jax.rollouts import Segment, Step, Trajectory
from rlanything_jax.tasks.task import Task
from rlanything_jax.trainer.batches import TrainSequence
from rlanything_jax.trainer.experience import judge_sequence, policy_sequences

QUESTION = [2]
DIALOGUE = WordDialogue(build_tokenizer(["put a mug"], []))


@pytest.fixture
def trajectory() -> Trajectory:
    """Two steps: prompt 10 11 12, action 20 21, observation 30, action 22 23 24, observation 31 32."""
    return Trajectory(
        Task("t", "w", "put a mug", {}),
        rollout=0,
        request=0,
        dialogue=DIALOGUE,
        segments=[
            Segment(
                [10, 11, 12, 20, 21, 30, 22, 23, 24, 31, 32],
                [0, 0, 0, -0.1, -0.2, 0, -0.3, -0.4, -0.5, 0, 0],
            )
        ],
        steps=[Step("", "", "", 0, 3, 5, point=6), Step("", "", "", 0, 6, 9, point=11)],
    )


@pytest.fixture
def transcript(trajectory: Trajectory) -> Transcript:
    return trajectory.transcript(DIALOGUE)


VOTES = [
    [Vote("", 1, "", [40, 41], [-1.0, -1.1]), Vote("", -1, "", [42], [-1.2])],
    [Vote("", 1, "", [43, 44, 45], [-1.3, -1.4, -1.5]), Vote("", 0, "", [46, 47], [-1.6, -1.7])],
]


def only(sequences: list[TrainSequence]) -> TrainSequence:
    (sequence,) = sequences
    return sequence


def test_earlier_steps_get_zero_advantage(trajectory: Trajectory) -> None:
    """Case 15: every step's tokens carry that step's advantage, what was read carries weight 0."""
    piece = only(
        policy_sequences(trajectory, np.array([0.5, -2.0, 9.0]))
    ).trunk  # [T] padded beyond the last step
    assert piece.tokens == [10, 11, 12, 20, 21, 30, 22, 23, 24]  # nothing follows from the last observation
    assert piece.advantage == [0, 0, 0, 0.5, 0.5, 0, -2, -2, -2]
    assert piece.weight == pytest.approx([0, 0, 0, 1 / 2, 1 / 2, 0, 1 / 3, 1 / 3, 1 / 3])


def test_sampler_logprobs_never_reach_the_batch(trajectory: Trajectory, transcript: Transcript) -> None:
    """Case 13."""
    piece = only(policy_sequences(trajectory, np.array([0.5, -2.0]))).trunk
    assert piece.logprobs == [0, 0, 0, -0.1, -0.2, 0, -0.3, -0.4, -0.5]
    branches = judge_sequence(transcript, VOTES, np.ones((2, 2)), QUESTION).branches
    assert [b.logprobs for b in branches] == [[0, *vote.logprobs] for votes in VOTES for vote in votes]


def test_each_token_weighs_alike_if_the_loss_is_over_tokens(
    trajectory: Trajectory, transcript: Transcript
) -> None:
    piece = only(policy_sequences(trajectory, np.array([0.5, -2.0]), "token")).trunk
    assert piece.weight == [0, 0, 0, 1, 1, 0, 1, 1, 1]
    branches = judge_sequence(transcript, VOTES, np.ones((2, 2)), QUESTION, "token").branches
    assert [b.weight for b in branches] == [[0, 1, 1], [0, 1], [0, 1, 1, 1], [0, 1, 1]]


def test_a_step_without_advantage_is_read_and_not_trained_on(trajectory: Trajectory) -> None:
    piece = only(policy_sequences(trajectory, np.array([0.0, 1.0]))).trunk
    assert piece.tokens == trajectory.tokens[:9]
    assert [i for i, weight in enumerate(piece.weight) if weight] == [6, 7, 8]
    assert not any(only(policy_sequences(trajectory, np.zeros(2))).trunk.weight)


def test_votes_are_branches_behind_the_observation_that_followed_their_step(transcript: Transcript) -> None:
    advantage = np.array([[0.5, -0.5], [1.5, 0.0], [7.0, 7.0]])
    sequence = judge_sequence(transcript, VOTES, advantage, QUESTION)
    assert sequence.trunk.tokens == transcript.tokens
    assert not any(sequence.trunk.weight)  # the judge did not write the trajectory
    assert [b.tokens for b in sequence.branches] == [[2, 40, 41], [2, 42], [2, 43, 44, 45]]
    assert [b.point for b in sequence.branches] == [6, 6, 11]
    assert [b.advantage for b in sequence.branches] == [[0, 0.5, 0.5], [0, -0.5], [0, 1.5, 1.5, 1.5]]
    for branch, size in zip(sequence.branches, (2, 1, 3), strict=True):
        assert branch.weight == pytest.approx([0] + [1 / size] * size)


def test_a_trajectory_without_advantages_has_no_branches(transcript: Transcript) -> None:
    assert judge_sequence(transcript, VOTES, np.zeros((2, 2)), QUESTION).branches == []


def test_a_lost_vote_is_noticed(transcript: Transcript) -> None:
    with pytest.raises(ValueError, match="zip"):
        judge_sequence(transcript, [VOTES[0][:1], VOTES[1]], np.ones((2, 2)), QUESTION)


def test_every_context_of_an_episode_is_a_sequence_of_its_own(trajectory: Trajectory) -> None:
    """Where a template drops old thoughts, each step is trained on exactly what it was sampled from."""
    trajectory.segments.append(Segment([10, 11, 50, 51, 52, 33], [0, 0, 0, -0.6, -0.7, 0]))
    trajectory.steps.append(Step("", "", "", 1, 3, 5, point=6))
    first, second = policy_sequences(trajectory, np.array([0.5, 0.0, -1.0]))
    assert first.trunk.advantage == [0, 0, 0, 0.5, 0.5, 0, 0, 0, 0]
    assert second.trunk.tokens == [10, 11, 50, 51, 52]
    assert second.trunk.advantage == [0, 0, 0, -1, -1]
    assert second.trunk.logprobs == [0, 0, 0, -0.6, -0.7]


def test_a_context_in_which_nothing_was_sampled_is_left_out(trajectory: Trajectory) -> None:
    trajectory.segments.append(Segment([10, 11, 50], [0, 0, 0]))
    assert len(policy_sequences(trajectory, np.ones(2))) == 1
